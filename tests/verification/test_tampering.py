"""A report with any leaf changed: no command breaks on it, and `verify` finds out."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clustersplit_cli.cli.app import run
from clustersplit_cli.errors import InputError
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.reports.verification import FAILED
from clustersplit_cli.verification.stated import UNCHECKED, check_account, is_unchecked
from tests.verification.conftest import MADE, Place, Report, at, leaves

BAD: tuple[Any, ...] = (
    ...,
    None,
    True,
    -1,
    0,
    3,
    10**12,
    0.5,
    -1e300,
    1e300,
    "",
    "text",
    "../x" * 90,
    [],
    {},
)
"""What a leaf is replaced by; `...` takes it away."""
COMMANDS = {
    "verify": ("verify", "run", "--quiet"),
    "report": ("report", "run", "--force", "--quiet"),
    "mmd": ("mmd", "feats.parquet", "--split", "run", "--quiet"),
    "config": (
        "split",
        "feats.parquet",
        "--config",
        "run/report.json",
        "--out",
        "again",
        "--force",
        "--quiet",
    ),
    "folds": (
        "kfold",
        "feats.parquet",
        "--config",
        "run/report.json",
        "--out",
        "again",
        "--force",
        "--quiet",
    ),
}
PLACES = 12
"""Leaves that are tried, drawn anew for every kind of run."""
ENDS = {0, 1, 2, 3}


def tampered(report: Report, place: Place, value: Any) -> str:
    content = copy.deepcopy(report)
    holder, name = at(content, place)
    if value is ...:
        del holder[name]
    else:
        holder[name] = value
    return json.dumps(content)


def still_a_report(text: str) -> bool:
    try:
        load_report(text)
    except InputError as error:
        assert error.hint and "\n" not in error.message
        return False
    return True


@pytest.mark.parametrize("kind", MADE)
def test_no_command_breaks_on_a_report_that_was_changed(
    kind: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    """Changes that the schema refuses are refused by all commands alike, so that a few of those will do."""
    report = copied(kind)
    path = Path("run/report.json")
    draw = random.Random(kind)
    for place in draw.sample(list(leaves(report)), PLACES):
        texts = [tampered(report, place, value) for value in BAD]
        whole = [text for text in texts if still_a_report(text)]
        tried = [draw.choice(whole)] if whole else []
        if draw.random() < 0.02:
            tried.append(draw.choice(texts))
        for text in tried:
            path.write_text(text, encoding="utf-8")
            for name in [draw.choice(list(COMMANDS))]:
                code = run(list(COMMANDS[name]))
                said = capsys.readouterr()
                assert code in ENDS, (name, place, text, said.err)
                assert "Traceback" not in said.err


def kind_of(place: Place) -> str:
    """A place as `UNCHECKED` names it."""
    return "".join("[]" if isinstance(name, int) else f".{name}" for name in place).removeprefix(".")


def noticeably_other(value: Any) -> Any:
    """Another value of the same type, where there is one; far from the first."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 2 + 0.01
    return {"": "x", None: "x"}.get(value, f"{value}x") if value is None or isinstance(value, str) else ["x"]


def one_of_each(report: Report, draw: random.Random) -> list[Place]:
    """One leaf of every kind, whichever."""
    kinds: dict[str, list[Place]] = {}
    for place in leaves(report):
        kinds.setdefault(kind_of(place), []).append(place)
    return [draw.choice(places) for places in kinds.values()]


@pytest.mark.parametrize("kind", ["split", "nystrom", "groups", "kfold", "parts", "baseline", "stream"])
def test_any_leaf_that_is_changed_is_found_out_but_for_those_in_the_docs(
    kind: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    """What the report alone gives away is told from it; everything else is left to the command."""
    report = copied(kind)
    assert run(["verify", "run", "--quiet"]) == 0, capsys.readouterr().err
    path = Path("run/report.json")
    unnoticed = []
    for place in one_of_each(report, random.Random(f"{kind} 1")):
        holder, name = at(report, place)
        text = tampered(report, place, noticeably_other(holder[name]))
        if is_unchecked(kind_of(place)) or not still_a_report(text):
            continue
        path.write_text(text, encoding="utf-8")
        seen = any(check.status == FAILED for check in check_account(json.loads(text)))
        if not seen and run(["verify", "run", "--quiet"]) == 0:
            unnoticed.append((kind_of(place), holder[name]))
        capsys.readouterr()
    assert not unnoticed


SOME_TOLD: dict[str, tuple[Place, Any]] = {
    "fewer starts": (("config", "restarts"), 3),
    "steps of a start": (("restarts", 1, "iterations"), 1000),
    "mmd of a start": (("restarts", 1, "mmd"), 0.3),
    "psi of a start": (("restarts", 1, "psi"), 0.0),
    "rising trace of a start": (("restarts", 1, "trace", 0), -1e3),
    "name of the winner twice": (("restarts", 1, "start"), "spectral-0+"),
    "plan that takes more than there is": (("plan", "bytes"), 10**15),
    "no certificate was asked for": (("config", "certify"), "never"),
    "no bound was asked for": (("config", "bound"), "never"),
    "passes in memory": (("config", "passes"), 6),
    "a strategy that does not search": (("config", "strategy"), "random"),
    "a file of another name": (("input", "files", 0, "path"), "other.parquet"),
}


@pytest.mark.parametrize("name", SOME_TOLD)
def test_much_of_what_cannot_always_be_told_is_told_of_a_split_in_memory(
    name: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    place, value = SOME_TOLD[name]
    text = tampered(copied("split"), place, value)
    assert still_a_report(text)
    Path("run/report.json").write_text(text, encoding="utf-8")
    assert run(["verify", "run", "--quiet"]) in {1, 2}, capsys.readouterr().err


def test_the_page_on_verify_lists_exactly_what_cannot_be_told() -> None:
    page = (Path(__file__).parents[2] / "docs" / "verify.md").read_text(encoding="utf-8")
    section = page.partition("## What it cannot check")[2].partition("\n## ")[0]
    listed = re.findall(r"`([a-z_]+\.[a-z_.*\[\]]+|[a-z_]+\[\]\.[a-z_.\[\]]+)`", section)
    assert sorted(listed) == sorted(UNCHECKED)


SMALL = ("--effort", "fast", "--restarts", "2", "--threads", "1")
BASELINES = {"greedy": (), "leave-one-domain-out": ("--leave", "art")}
MORE_RUNS = {
    "n splits": ("split", "feats.parquet", "--n-splits", "2", *SMALL),
    **{name: ("baseline", name, "feats.parquet", *more) for name, more in BASELINES.items()},
}
PASSES: dict[str, list[tuple[str, str, Any]]] = {
    "split": [
        ("tool.*", "tool.numpy", "9.9"),
        ("timing.*", "timing.steps.read", 1e6),
        ("plan.bytes", "plan.bytes", 1),
        ("plan.reason", "plan.reason", "because"),
        ("plan.seconds", "plan.seconds", 1e6),
        ("plan.rank", "plan.rank", 3),
        ("config.features", "config.features", "./feats.parquet"),
        ("config.threads", "config.threads", 64),
        ("config.max_iter", "config.max_iter", 7),
        ("config.solver", "config.solver", "cbc"),
        ("config.certify", "config.certify", "always"),
        ("config.bound", "config.bound", "always"),
        ("config.drop_invalid", "config.drop_invalid", True),
        ("restarts[].start", "restarts.1.start", "another"),
        ("restarts[].iterations", "restarts.1.iterations", 0),
        ("restarts[].converged", "restarts.1.converged", False),
        ("restarts[].trace[]", "restarts.1.trace.0", 1e6),
    ],
    "groups": [("search.programs.*", "search.programs.solved", 10**6)],
    "stream": [
        ("config.restarts", "config.restarts", 9),
        ("config.passes", "config.passes", 60),
        ("engine.workers", "engine.workers", 9),
        ("engine.shards", "engine.shards", 9),
        ("engine.sample_rows", "engine.sample_rows", 9),
        ("engine.passes", "engine.passes", 5),
        ("engine.factors", "engine.factors", "recompute"),
        ("engine.factor_bytes", "engine.factor_bytes", 9),
        ("engine.source_bytes", "engine.source_bytes", 9),
        ("engine.spill_bytes", "engine.spill_bytes", 9),
        ("engine.rows_per_second", "engine.rows_per_second", 9.0),
    ],
    "n splits": [("config.n_splits", "config.n_splits", 3)],
    "greedy": [("config.strategy", "config.strategy", "nearest-neighbours")],
    "leave-one-domain-out": [("config.leave", "config.leave", "photo")],
}
"""Of every run: an entry of the list, a place, and a value that verify takes there for the true one."""


@pytest.mark.parametrize("kind", PASSES)
def test_nothing_is_listed_as_what_cannot_be_told_that_always_is(
    kind: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("run/report.json")
    if kind in MORE_RUNS:
        copied("split")
        path = Path("more/report.json")
        assert run([*MORE_RUNS[kind], "--out", "more", "--quiet"]) == 0, capsys.readouterr().err
        if not path.exists():
            path = Path("more/split_0/report.json")
        report: Report = json.loads(path.read_text("utf-8"))
    else:
        report = copied(kind)
    for entry, name, value in PASSES[kind]:
        place = tuple(int(word) if word.isdigit() else word for word in name.split("."))
        holder, last = at(report, place)
        assert holder[last] != value, name
        assert re.fullmatch(re.escape(entry).replace(r"\*", ".*"), kind_of(place)), name
        path.write_text(tampered(report, place, value), encoding="utf-8")
        assert run(["verify", str(path.parent), "--quiet"]) == 0, (name, capsys.readouterr().err)


def test_every_entry_of_what_cannot_be_told_has_a_change_that_passes() -> None:
    assert sorted(entry for found in PASSES.values() for entry, _, _ in found) == sorted(UNCHECKED)


@pytest.mark.parametrize("kind", ["kfold", "parts", "split", "nystrom", "groups"])
def test_numbers_of_any_partition_are_compared_with_their_definition(
    kind: str, copied: Callable[[str], Report], capsys: pytest.CaptureFixture[str]
) -> None:
    def said() -> tuple[str, str]:
        capsys.readouterr()
        run(["verify", "run", "--quiet", "--json"])
        checks = json.loads(capsys.readouterr().out)["checks"]
        ((status, detail),) = [(c["status"], c["detail"]) for c in checks if c["name"] == "by definition"]
        return status, detail

    report = copied(kind)
    assert said()[0] == "ok"
    changed: list[Place] = [("mmd", "value"), ("objective", "psi"), ("objective", "ssq_total")]
    changed += [("parts", "mmd", 0, 1)] if report["parts"] else []
    for place in changed:
        holder, name = at(report, place)
        text = tampered(report, place, holder[name] * 1.05)
        Path("run/report.json").write_text(text, encoding="utf-8")
        assert said()[0] == "failed", place
