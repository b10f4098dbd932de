"""Inputs x options: one command on generated files, judged, then verified, repeated or continued."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.campaign.cases import CLUSTER, OUT, PUBLISHING, Case, build
from tests.campaign.cluster import SHARED
from tests.campaign.findings import Outcome, left_behind, read_report, run_directories, shown, snapshot
from tests.campaign.process import SECONDS, Result, call, fresh, run

NAME = "cases"
AGAIN = "second run"
MOST_VERIFIED = 3
FEW_VALUES = ("--engine", "--format", "--aim", "--kernel", "--gamma", "--impute", "--solver", "--rounding")
OF_THE_MACHINE = frozenset({"timing", "memory", "threads", "budget", "bytes", "plan", "rows_per_second"})


def examine(seed: int, number: int, place: Path) -> Outcome:
    """Make a case, run it, and look at everything it did."""
    outcome = Outcome()
    fresh(place)
    made = call(lambda: build(seed, number, place / "work").dump(place / "case.json"))
    if made != 0:
        outcome.add("the generator failed", f"exit code {made}")
        return outcome
    case = Case.load(place / "case.json")
    before = snapshot(place / "work")
    is_long = case.command in ("evaluate", "compare") or "dask" in case.words
    result = _run(case.words, place, outcome, seconds=SECONDS * (3 if is_long else 1))
    outcome.tags[f"{case.command or 'no command'} exit {result.code}"] += 1
    outcome.findings += left_behind(before, snapshot(place / "work"), place, result)
    if not result.is_done:
        return outcome
    outcome.tags.update({f"{case.command} done with {name}" for name in _options(case.words)})
    if case.command in (*PUBLISHING, "ladder") and case.out:
        for directory in run_directories(place / "work" / case.out)[:MOST_VERIFIED]:
            _check_run(case, directory, place, outcome)
        if case.command != "ladder" and not outcome.findings:
            _continue(case, place, outcome)
    return outcome


def _options(words: tuple[str, ...]) -> list[str]:
    """The names of the long options on a command line, those with few values with them."""
    named = []
    for place, word in enumerate(words):
        if word == "--":
            break
        name, _, value = word.partition("=")
        if name.startswith("--"):
            value = value or words[place + 1] if place + 1 < len(words) else ""
            named.append(f"{name} {value}" if name in FEW_VALUES and value.isalpha() else name)
    return named


def _run(words: tuple[str, ...], place: Path, outcome: Outcome, *, seconds: float = SECONDS) -> Result:
    """Run a command, on the shared cluster if it asks for that, and judge how it ended."""
    uses_cluster = CLUSTER in words
    address = SHARED.address() if uses_cluster else ""
    result = run([address if word == CLUSTER else word for word in words], place, seconds=seconds)
    outcome.ran(result)
    if uses_cluster:
        outcome.tags[f"on the cluster: exit {result.code}"] += 1
        if result.code == 4:
            outcome.add("a cluster that is well fails a command", result.err[-400:])
    return result


def _check_run(case: Case, directory: Path, place: Path, outcome: Outcome) -> None:
    """Check that a published run is a partition of the rows, and that `verify` agrees."""
    report = read_report(directory)
    _check_rows(directory, report, outcome)
    name = os.path.relpath(directory, place / "work")
    on_cluster = ("--engine", "dask", "--scheduler", CLUSTER) if case.uses_cluster and case.again else ()
    verified = _run(("verify", name, *on_cluster), place, outcome)
    outcome.tags["verified"] += 1
    if verified.code != 0:
        failed = [line for line in verified.err.splitlines() if "ok" not in line and "skipped" not in line]
        outcome.add("verify fails an honest run", "\n".join(failed[-8:]))


def _check_rows(directory: Path, report: dict[str, Any], outcome: Outcome) -> None:
    """Rows are ascending, on one side each, and all there."""
    rows = _rows_of_parts(directory, report)
    if rows is None:
        return
    outcome.tags["rows looked at"] += 1
    stated = report["input"]
    if any(part.dtype != np.int64 or (np.diff(part) <= 0).any() for part in rows):
        outcome.add("rows are not ascending int64", str([str(part.dtype) for part in rows]))
    together = np.sort(np.concatenate(rows))
    expected = stated["n_rows"] - stated["n_excluded"] - stated["n_dropped"]
    if len(together) != expected or len(set(together.tolist())) != expected:
        outcome.add("the parts are no partition of the rows", f"{[len(part) for part in rows]} of {expected}")
    if len(together) and (together[0] < 0 or together[-1] >= stated["n_rows"]):
        outcome.add("a row that does not exist", f"{together[0]} to {together[-1]} of {stated['n_rows']}")
    if not all(len(part) for part in rows):
        outcome.add("an empty part", str([len(part) for part in rows]))


def _rows_of_parts(directory: Path, report: dict[str, Any]) -> list[NDArray[Any]] | None:
    """The rows of every part; None where they are in no file that can be read here."""
    parts = report["parts"]
    names = ("train", "val") if parts is None else [part["name"] for part in parts["parts"]]
    if (directory / "split.json").exists():
        content = json.loads((directory / "split.json").read_text("utf-8"))
        return [np.array(content[name], dtype=np.int64) for name in names]
    for suffix in (".npy", ".txt"):
        files = [directory / f"{name}{suffix}" for name in names]
        if parts is not None and (directory / f"folds{suffix}").exists():
            files = [directory / name / f"val{suffix}" for name in names]
        if all(path.exists() for path in files):
            if suffix == ".npy":
                return [np.load(path, allow_pickle=False) for path in files]
            return [np.array(path.read_text("utf-8").split(), dtype=np.int64) for path in files]
    return None


def _continue(case: Case, place: Path, outcome: Outcome) -> None:
    """Use the run as a user would: again, as a configuration, measured, drawn."""
    out = place / "work" / OUT
    one_report = (out / "report.json").exists()
    may_differ = case.uses_cluster and "--format" not in case.words  # every engine has its usual format
    if (
        case.again == "repeat"
        and not may_differ
        and not any(word.startswith(("--annotate", "--seed")) for word in case.words)
    ):
        words = [AGAIN if word == OUT else word for word in case.words]
        if case.uses_cluster:  # what a cluster gives is what this machine alone gives
            words = ["stream" if word == "dask" else word for word in words if word != CLUSTER]
            words.remove("--scheduler")
        if not any(word.startswith("--threads") for word in case.words):
            words[1:1] = ["--threads", "1"] if case.command != "baseline" else []
        _compare(case, tuple(words), place, outcome, numbers=True)
    elif case.again == "config" and case.command in ("split", "kfold") and one_report:
        features = ["--", case.features] if len(case.features) % 2 else []  # the report names them too
        cluster = ["--scheduler", CLUSTER] if case.uses_cluster else []
        words = [case.command, "--config", f"{OUT}/report.json", "--out", AGAIN, *cluster, *features]
        _compare(case, tuple(words), place, outcome, numbers=False)
    elif case.again == "mmd" and one_report and (out / "val.npy").exists() and (out / "train.npy").exists():
        if read_report(out)["parts"] is None:
            measured = _run(("mmd", "--split", OUT, "--json", "--", case.features), place, outcome)
            outcome.tags["measured again"] += 1
            if measured.code != 0:
                outcome.add("mmd fails on an honest run", measured.err[-400:])
    elif case.again == "report" and one_report:
        drawn = _run(("report", OUT), place, outcome)
        outcome.tags["drawn"] += 1
        if drawn.code != 0 and "--html" not in case.words:
            outcome.add("report fails on an honest run", drawn.err[-400:])
    elif case.again == "rerun" and one_report:
        verified = _run(("verify", OUT, "--rerun"), place, outcome)
        outcome.tags["searched again"] += 1
        if verified.code != 0:
            outcome.add("verify --rerun fails an honest run", verified.err[-400:])


def _compare(case: Case, words: tuple[str, ...], place: Path, outcome: Outcome, *, numbers: bool) -> None:
    """Run again, and compare index files byte by byte, and if asked the numbers of the reports."""
    again = _run(words, place, outcome)
    outcome.tags["repeated"] += 1
    if again.code != 0:
        outcome.add("a second run fails", f"{shown(words)}\n{again.err[-400:]}")
        return
    first, second = (snapshot(place / "work" / name) for name in (OUT, AGAIN))
    of_reports = ("report.json", "report.html")
    kept = [
        {path: content for path, content in tree.items() if not path.endswith(of_reports)}
        for tree in (first, second)
    ]
    if numbers and kept[0] != kept[1]:
        outcome.add(
            "a second run gives other files",
            str([path for path in kept[0] if kept[0][path] != kept[1].get(path)]),
        )
    shared = set(kept[0]) & set(kept[1])
    if not numbers and any(kept[0][path] != kept[1][path] for path in shared):
        outcome.add("the same configuration gives other files", str(sorted(shared)))
    for directory in run_directories(place / "work" / OUT) if numbers else []:
        other = place / "work" / AGAIN / directory.relative_to(place / "work" / OUT)
        ignored = {*OF_THE_MACHINE, "engine"} if case.uses_cluster else OF_THE_MACHINE
        reports = [json.dumps(_comparable(read_report(found), ignored)) for found in (directory, other)]
        if reports[0] != reports[1]:
            at = next(i for i, pair in enumerate(zip(*reports, strict=False)) if pair[0] != pair[1])
            outcome.add(
                "a second run gives other numbers",
                " | ".join(text[max(0, at - 80) : at + 40] for text in reports),
            )


def _comparable(value: Any, ignored: Collection[str]) -> Any:
    """A report without what depends on the machine or the moment."""
    if isinstance(value, dict):
        return {key: _comparable(inner, ignored) for key, inner in value.items() if key not in ignored}
    return [_comparable(inner, ignored) for inner in value] if isinstance(value, list) else value
