"""Spreads cases over processes, gathers what they found, and says how to repeat each finding."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.campaign import isolation
from tests.campaign.cluster import SHARED
from tests.campaign.findings import Finding, Outcome

KINDS = {"cases": "inputs", "oracle": "problems", "kills": "kills", "tamper": "tamper"}
"""What can be run, and the module that examines it."""
SHARES = {"cases": 0.5, "oracle": 0.2, "kills": 0.15, "tamper": 0.15}
USUAL_SECONDS = 600.0
PROGRESS_SECONDS = 15.0
ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Tally:
    """What one kind of cases came to."""

    cases: int = 0
    seconds: float = 0.0
    tags: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, Finding]] = field(default_factory=list)
    slow: list[tuple[float, int, str]] = field(default_factory=list)

    def take(self, number: int, outcome: Outcome) -> None:
        """Count one case."""
        self.cases += 1
        self.tags.update(outcome.tags)
        self.findings += [(number, finding) for finding in outcome.findings]
        self.slow += [(seconds, number, words) for seconds, words in outcome.slow]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for; 0 without findings, 1 with some, 2 if it must not start."""
    asked = _parser().parse_args(arguments)
    try:
        network = isolation.isolate()
    except isolation.NetworkRefusedError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    _keep_libraries_quiet()
    from tests.campaign.cases import option_names
    from tests.campaign.process import warm_up

    # Not a TemporaryDirectory: every forked child would remove it as it ends.
    place = Path(tempfile.mkdtemp(prefix="campaign-", dir=_fast_place()))
    try:
        warm_up(place / "rehearsal")
        option_names()  # kept, so that the children that make cases need not look
        return _one(asked) if asked.case is not None else _all(asked, network, place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _all(asked: argparse.Namespace, network: str, place: Path) -> int:
    """Run as many cases of the kinds asked for as asked for."""
    what = commit()  # the files may change while this runs; what runs has been read
    say(f"Network: {network}. Seed {asked.seed}, {asked.workers} processes, commit {what}.")
    seconds = asked.seconds or (float("inf") if asked.counts else USUAL_SECONDS)
    until = time.monotonic() + seconds
    tallies = {}
    for kind, count in _kinds(asked).items():
        share = SHARES[kind] if asked.kind == "all" else 1.0
        end = until if asked.counts else time.monotonic() + seconds * share
        tallies[kind] = _run_kind(kind, count, end, asked, place)
    summary = summarize(what, asked.seed, tallies)
    print_summary(summary, asked.seed, tallies)
    if asked.record:
        asked.record.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    if asked.write:
        write_page(asked.write, summary, add=asked.add)
    return int(any(tally.findings for tally in tallies.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, help="in all, shared among the kinds; 600 without --counts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("--counts", default="", help="such as cases=20000,kills=300; no more than that")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run this case alone, and keep its files")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--record", type=Path, help="write the summary as JSON")
    parser.add_argument("--write", type=Path, help="write the summary into this page")
    parser.add_argument("--add", action="store_true", help="keep the summaries that the page has")
    return parser


def _keep_libraries_quiet() -> None:
    """One thread each: what is to be forked must have no others."""
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))


def _fast_place() -> str | None:
    """Memory, where it can be written: thousands of small files a minute."""
    shared = Path("/dev/shm")
    return str(shared) if os.access(shared, os.W_OK) else None


def _kinds(asked: argparse.Namespace) -> dict[str, int | None]:
    """The kinds to run, each with its number of cases, or None to go by the clock."""
    if asked.counts:
        pairs = [item.split("=") for item in asked.counts.split(",")]
        return {kind: int(count) for kind, count in pairs}
    return dict.fromkeys(KINDS if asked.kind == "all" else [asked.kind])


def examiner(kind: str) -> Any:
    """The module that examines cases of a kind."""
    return import_module(f"tests.campaign.{KINDS[kind]}")


def _one(asked: argparse.Namespace) -> int:
    """Run one case, show what it said, and keep its files."""
    kind = "cases" if asked.kind == "all" else asked.kind
    place = Path(tempfile.mkdtemp(prefix=f"campaign-{kind}-{asked.case}-"))
    try:
        outcome = examiner(kind).examine(asked.seed, asked.case, place / "case")
    finally:
        SHARED.stop()
    for finding in outcome.findings:
        say(f"FOUND {finding.rule}: {finding.detail}")
    if (place / "case" / "case.json").exists():
        say((place / "case" / "case.json").read_text("utf-8"))
    say(f"{dict(outcome.tags)}\nThe files are in {place / 'case'}")
    return int(bool(outcome.findings))


def _run_kind(kind: str, count: int | None, until: float, asked: argparse.Namespace, place: Path) -> Tally:
    """Run cases of one kind in several processes until their number, or the time, is used up."""
    started = time.monotonic()
    paths, pids = [], []
    for worker in range(asked.workers):
        paths.append(place / f"{kind}-{worker}.jsonl")
        paths[-1].touch()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                numbers = range(
                    asked.first + worker, asked.first + (count if count is not None else 10**9), asked.workers
                )
                _work(kind, asked.seed, numbers, until, paths[-1], place / f"{kind}-{worker}")
                code = 0
            except BaseException:
                import traceback

                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        pids.append(pid)
    tally, ends = _gather(kind, paths, pids)
    tally.seconds = time.monotonic() - started
    if any(ends):
        tally.findings.append((-1, Finding("the campaign itself failed", f"exit codes {ends}")))
    return tally


def _work(kind: str, seed: int, numbers: range, until: float, path: Path, place: Path) -> None:
    """Examine cases one after the other, and write down what came of each."""
    module = examiner(kind)
    with path.open("a", encoding="utf-8") as stream:
        for number in numbers:
            if time.monotonic() > until:
                break
            outcome = module.examine(seed, number, place)
            found = [[finding.rule, finding.detail] for finding in outcome.findings]
            stream.write(json.dumps([number, found, outcome.tags, outcome.slow]) + "\n")
            stream.flush()
    SHARED.stop()
    shutil.rmtree(place, ignore_errors=True)


def _gather(kind: str, paths: Sequence[Path], pids: Sequence[int]) -> tuple[Tally, list[int]]:
    """Read what the processes write until they have ended; show how far they are."""
    tally, streams, ends = Tally(), [path.open(encoding="utf-8") for path in paths], dict.fromkeys(pids, -1)
    rest, shown, living = [""] * len(paths), time.monotonic(), set(pids)
    while living:
        for pid in list(living):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                ends[pid] = os.waitstatus_to_exitcode(status)
                living.remove(pid)
        for index, stream in enumerate(streams):
            lines = (rest[index] + stream.read()).split("\n")
            rest[index] = lines.pop()
            for line in lines:
                number, found, tags, slow = json.loads(line)
                outcome = Outcome(
                    [Finding(*pair) for pair in found], Counter(tags), [tuple(pair) for pair in slow]
                )
                tally.take(number, outcome)
                for finding in outcome.findings:
                    say(f"{kind} {number}: {finding.signature}")
        if time.monotonic() - shown > PROGRESS_SECONDS:
            shown = time.monotonic()
            say(f"{kind}: {tally.cases} cases, {len(tally.findings)} findings")
        time.sleep(0.05)
    for stream in streams:
        stream.close()
    return tally, list(ends.values())


def summarize(what: str, seed: int, tallies: dict[str, Tally]) -> dict[str, Any]:
    """What was run and what came of it, as JSON; `what` is the commit."""
    return {
        "commit": what,
        "seed": seed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "kinds": {
            kind: {
                "cases": tally.cases,
                "seconds": round(tally.seconds),
                "findings": len(tally.findings),
                "tags": dict(sorted(tally.tags.items())),
            }
            for kind, tally in tallies.items()
        },
    }


def print_summary(summary: dict[str, Any], seed: int, tallies: dict[str, Tally]) -> None:
    """Print counts, then every kind of finding with the command that repeats it."""
    for kind, tally in tallies.items():
        say(f"\n{kind}: {tally.cases} cases in {tally.seconds:.0f} s, {len(tally.findings)} findings")
        say("  " + ", ".join(f"{tag}: {count}" for tag, count in sorted(tally.tags.items())))
        for seconds, number, words in sorted(tally.slow, reverse=True)[:5]:
            say(f"  slow, {seconds:.0f} s: case {number}: {words}")
        alike: dict[str, list[tuple[int, Finding]]] = {}
        for number, finding in tally.findings:
            alike.setdefault(finding.signature, []).append((number, finding))
        for signature, found in sorted(alike.items(), key=lambda pair: -len(pair[1])):
            say(f"\n  {len(found)} x {signature}")
            say("    " + found[0][1].detail[:1_500].replace("\n", "\n    "))
            numbers = sorted({number for number, _ in found})[:4]
            for number in numbers:
                say(f"    python -m tests.campaign --kind {kind} --seed {seed} --case {number}")
    found = sum(len(tally.findings) for tally in tallies.values())
    total = sum(tally.cases for tally in tallies.values())
    say(f"\n{total} cases, {found} findings, commit {summary['commit']}")


def commit() -> str:
    """The commit that is run, with a + where files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=10", "--dirty=+"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


BEGIN, END = "<!-- campaign: begin -->", "<!-- campaign: end -->"


def write_page(path: Path, summary: dict[str, Any], *, add: bool = False) -> None:
    """Replace the table between two marks of a page, or add one to it."""
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    kept, tail = rest.split(END)
    before = kept.strip() + "\n\n" if add else ""
    path.write_text(f"{head}{BEGIN}\n{before}{table(summary)}{END}{tail}", encoding="utf-8")


def table(summary: dict[str, Any]) -> str:
    """The counts of a campaign as Markdown."""
    lines = [
        f"Commit `{summary['commit']}`, seed {summary['seed']}, {summary['date']}:",
        "",
        "| kind | cases | commands run | findings |",
        "| --- | --- | --- | --- |",
    ]
    for kind, counts in summary["kinds"].items():
        commands = counts["tags"].get("commands", 0)
        lines.append(f"| {kind} | {counts['cases']:,} | {commands:,} | {counts['findings']} |")
    tags = summary["kinds"].get("oracle", {}).get("tags", {})
    compared, best = (
        sum(count for tag, count in tags.items() if tag.endswith(f": {word}"))
        for word in ("compared", "best")
    )
    if compared:
        lines += ["", f"{best:,} of {compared:,} problems of the oracle ended at the best of all splits."]
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """Tell the user, whatever letters it has."""
    sys.stderr.write(text.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stderr.flush()
