"""`clustersplit mmd`: how far apart files, groups or the sides of a split are, and gates on that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from clustersplit_cli.cli import engine as scale
from clustersplit_cli.cli.commands.mmd_input import MMDRequest, choose_for_mmd, measure_sharded
from clustersplit_cli.cli.console import progress_bar, stderr_console
from clustersplit_cli.cli.output import print_to_stdout
from clustersplit_cli.data.publish import check_file_destination, recover
from clustersplit_cli.data.writers import write_witness
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.errors import CheckFailedError, UsageError
from clustersplit_cli.pipeline.mmd.run import compare
from clustersplit_cli.progress import Stopwatch
from clustersplit_cli.reports.mmd.terminal import render_mmd
from clustersplit_cli.reports.readable import render_json
from clustersplit_cli.reports.terminal import render_notices

if TYPE_CHECKING:
    from clustersplit_cli.pipeline.mmd.groups import Comparison
    from clustersplit_cli.pipeline.mmd.run import Answer
    from clustersplit_cli.reports.mmd.summary import MMDReport


def run(context: typer.Context) -> None:
    """Check everything that can be checked, then read, measure and show."""
    watch = Stopwatch()
    gates = Gates.from_options(context.params)
    task = MMDRequest.from_options(context)
    given = task.given
    console = stderr_console()
    engine = choose_for_mmd(task, scale.engine_options(given))
    if engine.engine != LOCAL:
        report = measure_sharded(task, engine, console)
        if given["json"]:
            print_to_stdout(render_json(report))
        if given["quiet"]:
            render_notices(report.warnings, console=console)
        else:
            render_mmd(report, [], console=console)
        return check_gates(report, gates)
    if given["witness"] is not None:
        for line in recover(given["witness"]):
            console.print(f"note: {line}", soft_wrap=True)
        check_file_destination(given["witness"], force=given["force"], inputs=task.inputs())
    with progress_bar(console, quiet=given["quiet"]) as progress:
        with watch.step("read"):
            comparison = task.read(progress)
        if given["witness"] is not None and comparison.main_pair is None:
            raise UsageError(
                f"--witness tells two groups apart, but there are {len(comparison.parts)}",
                hint="compare two files, two groups, or the sides of a split",
            )
        if given["near_duplicates"] is not None and comparison.main_pair is None:
            raise UsageError(
                f"--near-duplicates compares two groups, but there are {len(comparison.parts)}",
                hint="compare two files, two groups, or the sides of a split",
            )
        answer = compare(
            comparison,
            task.checked,
            task.question(comparison),
            config=task.config(),
            stopwatch=watch,
            progress=progress,
        )
    outputs = _write_witness(given, comparison, answer)
    if given["json"]:
        print_to_stdout(render_json(answer.report), given["witness"])
    if given["quiet"]:
        render_notices(answer.report.warnings, console=console)
    else:
        render_mmd(answer.report, outputs, console=console)
    check_gates(answer.report, gates)


def _write_witness(given: Mapping[str, Any], comparison: Comparison, answer: Answer) -> list[Path]:
    if given["witness"] is None or answer.witness is None:
        return []

    codes = np.empty(len(comparison.features), np.int64)
    for code, part in enumerate(comparison.parts):
        codes[part.rows] = code
    write_witness(
        given["witness"],
        [part.name for part in comparison.parts],
        codes,
        comparison.positions,
        answer.witness,
        force=given["force"],
    )
    return [given["witness"]]


@dataclass(frozen=True)
class Gates:
    """What the user asked to hold; None: did not ask."""

    above: float | None
    below: float | None
    p: float | None
    below_random: float | None
    if_invalid: bool

    @classmethod
    def from_options(cls, given: Mapping[str, Any]) -> Gates:
        """Read --fail-above and its like."""
        above, below = (
            _limit("--fail-above", given["fail_above"]),
            _limit("--fail-below", given["fail_below"]),
        )
        if above is not None and below is not None and below > above:
            raise UsageError(
                f"no MMD is at least {below:g} and at most {above:g}",
                hint="--fail-below must not be larger than --fail-above",
            )
        times = _limit("--fail-below-random", given["fail_below_random"], "multiple of the random mean", "3")
        return cls(above, below, _level(given), times, given["fail_if_invalid"])


def _limit(option: str, text: str | None, what: str = "MMD", example: str = "0.1") -> float | None:
    if text is None:
        return None
    value = _number(text)
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(
            f"{option} '{text}' is no {what}", hint=f"a number of at least 0: {option} {example}"
        )
    return value


def _level(given: Mapping[str, Any]) -> float | None:
    """Read --fail-p, which takes as many permutations as a p-value below it needs."""
    text = given["fail_p"]
    if text is None:
        return None
    value, count = _number(text), given["permutations"]
    if not 0 < value < 1:
        raise UsageError(
            f"--fail-p '{text}' is no level of a test", hint="a number between 0 and 1: --fail-p 0.05"
        )
    if not count or 1 / (1 + count) >= value:  # the smallest p-value that there can be
        needed = max(1000, math.ceil(10 / value))
        found = f"with {count} no p-value is below it" if count else "and there are none"
        raise UsageError(f"--fail-p {text} needs permutations, {found}", hint=f"add --permutations {needed}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def check_gates(report: MMDReport, gates: Gates) -> None:
    """Fail if what the user asked for does not hold.

    The limits are for the sides of a split, not for their distances to an evaluation set; for the pairs of
    any other comparison, all of them.
    """
    above, below, level, times = gates.above, gates.below, gates.p, gates.below_random
    pairs = report.pairs if report.mmd is None else report.pairs[:1]
    is_asked = any(limit is not None for limit in (above, below, level, times))
    for pair in pairs if is_asked else ():
        name = f"MMD of {pair.first} and {pair.second}"
        if pair.value is None:
            raise CheckFailedError(f"the {name} is undefined", hint="use --estimator biased")
        if above is not None and pair.value > above:
            raise CheckFailedError(f"the {name} is {pair.value:.6g}, above the {above:g} of --fail-above")
        if below is not None and pair.value < below:
            raise CheckFailedError(f"the {name} is {pair.value:.6g}, below the {below:g} of --fail-below")
        if level is not None and pair.p_value is not None and pair.p_value < level:
            raise CheckFailedError(
                f"the p-value of the {name} is {pair.p_value:.3g}, below the {level:g} of --fail-p"
            )
        random = pair.random_mean
        if random is None and report.split is not None:
            random = report.split.random_mean
        if times is not None and random is not None and pair.value < times * random:
            raise CheckFailedError(
                f"the {name} is {pair.value:.6g}, less than {times:g} times the random mean {random:.6g}"
            )
    if gates.if_invalid and report.validity is not None and not report.validity.valid:
        between, *others = (
            "undefined" if value is None else f"{value:.6g}"
            for value in (
                report.validity.train_val,
                report.validity.train_evaluation,
                report.validity.val_evaluation,
            )
        )
        raise CheckFailedError(
            f"worst-case check failed: the MMD of train and val is {between}, but to evaluation it is "
            f"{others[0]} from train and {others[1]} from val"
        )
