"""Runs killed in processes of their own, mostly while they publish: nothing is ever left half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np

from tests.campaign.bases import write_inputs
from tests.campaign.findings import Outcome, Snapshot, read_report, snapshot
from tests.campaign.process import CORES, Result, call, flush, fresh, run
from tests.campaign.tables import Random, one_of, pick

KIND = 3
SECONDS_TO_END = 4.0
"""A polite signal is promised to end a command in two seconds; a machine at work may need longer."""
LONGEST = 300.0
QUICK = ("feats.parquet", "--columns", "f*", "--quiet")
COMMANDS: dict[str, tuple[str, ...]] = {
    "split": ("split", *QUICK, "--restarts", "2", "--effort", "fast", "--format", "npy", "--format", "txt"),
    "annotated": ("split", *QUICK, "--restarts", "2", "--effort", "fast", "--annotate", "annotated.parquet"),
    "folds": ("kfold", *QUICK, "--k", "3", "--restarts", "2", "--effort", "fast"),
    "random": ("baseline", "random", *QUICK),
    "stream": ("split", *QUICK, "--restarts", "2", "--engine", "stream", "--nystrom", "10"),
}
PROGRAM = (sys.executable, "-m", "tests.campaign.program")
POLITE = {signal.SIGTERM: 143, signal.SIGINT: 130}


def _words(command: str, *, is_new: bool, force: bool) -> list[str]:
    """A command line whose result differs between old and new runs."""
    words = COMMANDS[command]
    if not is_new:
        keep = words.index("--annotate") if "--annotate" in words else len(words)
        words = words[:keep]
    share = (
        ("--seed", "2" if is_new else "1") if command in ("folds",) else ("--h", "0.3" if is_new else "0.2")
    )
    return [
        *PROGRAM,
        *words,
        *share,
        "--out",
        "out",
        *["--force"] * force,
    ]


def examine(seed: int, number: int, place: Path) -> Outcome:
    """Kill one run, see what it left, and run again."""
    outcome = Outcome()
    rng = np.random.default_rng([seed, KIND, number])
    command = one_of(rng, list(COMMANDS))
    over = bool(rng.random() < 0.5)
    sent = pick(rng, [(0.5, signal.SIGKILL), (0.3, signal.SIGTERM), (0.2, signal.SIGINT)])
    old, new, seconds = _expected(command, place.with_name(f"{place.name}-whole"))
    fresh(place)
    work = place / "work"
    call(lambda: write_inputs(work))
    if over:
        _forked(_words(command, is_new=False, force=False), place)
    inputs = {name: content for name, content in snapshot(work).items() if not name.startswith("out")}
    code, err, waited = _kill(rng, _words(command, is_new=True, force=over), place, sent, seconds)
    outcome.tags["commands"] += 2
    outcome.tags[f"{signal.Signals(sent).name} {'ended before' if code == 0 else 'killed'}"] += 1
    after = snapshot(work)
    _check_end(sent, code, err, waited, outcome)
    _check_left(work, after, over, old, new, inputs, sent, code, outcome)
    done = _forked(_words(command, is_new=True, force=True), place)
    if not done.is_done:
        outcome.add("the next run fails", done.err[-500:])
        return outcome
    last = snapshot(work)
    if _index_files(last) != new or any(last.get(name) != content for name, content in inputs.items()):
        outcome.add("the next run gives something else", str(sorted(set(last) ^ set(new))[:5]))
    expected = {*inputs, *(name for name in last if name.split("/")[0] == "out")}
    expected |= {"annotated.parquet"} if command == "annotated" else set()
    if set(last) != expected:
        outcome.add("the next run leaves what was left", str(sorted(set(last) - expected)[:5]))
    return outcome


def _index_files(tree: Snapshot) -> Snapshot:
    """What a published run holds, but for its report and page, which tell the time."""
    return {
        name: content for name, content in tree.items() if name.startswith("out/") and "report." not in name
    }


@cache
def _expected(command: str, place: Path) -> tuple[Snapshot, Snapshot, float]:
    """The index files of the old run and of the new one, and the seconds that a run takes."""
    found, seconds = [], 0.0
    for is_new in (False, True):
        fresh(place)
        call(lambda: write_inputs(place / "work"))
        words = _words(command, is_new=is_new, force=False)
        if is_new:  # as those that are killed, to see how long they take
            started = time.monotonic()
            done = _run(words, place)
            seconds, ended_well, said = time.monotonic() - started, done.returncode == 0, done.stderr
        else:
            result = _forked(words, place)
            ended_well, said = result.is_done, result.err
        if not ended_well:
            raise RuntimeError(said)
        found.append(_index_files(snapshot(place / "work")))
    return found[0], found[1], seconds


def _forked(words: list[str], place: Path) -> Result:
    """Run to the end what nobody kills; a fork is enough for that, and takes a tenth of the time."""
    return run(words[len(PROGRAM) :], place, seconds=LONGEST)


def _run(words: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(place / "tmp")}
    return subprocess.run(
        words,
        cwd=place / "work",
        env=environment,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


def _kill(
    rng: Random, words: list[str], place: Path, sent: signal.Signals, seconds: float
) -> tuple[int | None, str, float]:
    """Start a run and end it, mostly while its staging area exists; its exit code, words, and time to end."""
    flush()
    environment = {**os.environ, "TMPDIR": str(place / "tmp")}
    at_publication = rng.random() < 0.75
    with (place / "err.txt").open("wb") as err:
        running = subprocess.Popen(words, cwd=place / "work", env=environment, stderr=err, stdout=err)
        limit = time.monotonic() + LONGEST
        while running.poll() is None and not _listens(running.pid) and time.monotonic() < limit:
            time.sleep(0.001)
        if at_publication:
            while running.poll() is None and not _is_staging(place / "work") and time.monotonic() < limit:
                time.sleep(0.0002)
            time.sleep(rng.exponential(0.012))
        else:
            time.sleep(rng.uniform(0, seconds))
        running.send_signal(sent)
        told = time.monotonic()
        try:
            code: int | None = running.wait(LONGEST)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()
            code = None
    return code, (place / "err.txt").read_text("utf-8", "replace"), time.monotonic() - told


def _is_staging(work: Path) -> bool:
    return any(name.startswith(".clustersplit-") for name in os.listdir(work))  # noqa: PTH208


def _listens(pid: int) -> bool:
    """Whether a process has begun to catch SIGTERM: before that the interpreter is only starting."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return True
    caught = next((line for line in lines if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def _check_end(sent: signal.Signals, code: int | None, err: str, waited: float, outcome: Outcome) -> None:
    """A polite signal ends the command soon, in words."""
    if code is None:
        outcome.add(f"{sent.name} does not end the command", err[-500:])
    elif sent in POLITE:
        # Once the result is in place and the interpreter ends, signals do what they do by default.
        if code not in (0, POLITE[sent], -sent):
            outcome.add(f"exit code {code} after {sent.name}", err[-500:])
        if waited > SECONDS_TO_END * max(1.0, os.getloadavg()[0] / CORES):
            outcome.add(f"{sent.name} ends the command late", f"after {waited:.1f} s")
        if "Traceback" in err or "Exception ignored" in err:
            outcome.add(f"{sent.name} shows a traceback", err[-1_000:])


def _check_left(
    work: Path,
    after: Snapshot,
    over: bool,
    old: Snapshot,
    new: Snapshot,
    inputs: Snapshot,
    sent: signal.Signals,
    code: int | None,
    outcome: Outcome,
) -> None:
    """What is at the destination is nothing, the old run or the new one; inputs are as they were."""
    if any(after.get(name) != content for name, content in inputs.items()):
        outcome.add("a killed run changed an input", sent.name)
    areas = [name for name in after if name.startswith(".clustersplit-")]
    if sent in POLITE and areas:
        outcome.add(f"a staging area was left after {sent.name}", ", ".join(areas[:3]))
    found = _index_files(after)
    if (work / "out").exists():
        outcome.tags["found the new run" if found == new else "found the old run"] += 1
        if code == -sent and sent in POLITE and found != new:
            outcome.add(f"killed outright by {sent.name}", str(sorted(set(found))[:6]))
        if found not in ((old, new) if over else (new,)):
            outcome.add("half a run", str(sorted(set(found))[:6]))
        elif "sizes" not in read_report(work / "out"):
            outcome.add("a run without its report", "")
        return
    outcome.tags["found nothing"] += 1
    if code == -sent and sent in POLITE:
        outcome.add(f"killed outright by {sent.name}", str(sorted(after)[:6]))
    if not over:
        return
    # Between the two renames the earlier run is whole, aside; the next run puts it back or replaces it.
    aside = {
        "out/" + name.split("/old/", 1)[1]: content
        for name, content in after.items()
        if name.startswith(".clustersplit-") and "/old/" in name and "report." not in name
    }
    if sent in POLITE or aside != old:
        outcome.add("the earlier run is gone", f"{sent.name} {code}: {sorted(after)[:6]}")
