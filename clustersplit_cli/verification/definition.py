"""Do MMD, Psi and scatter agree with their definitions? In memory, or block by block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from clustersplit_cli.core.geometry.nystrom import trace_rows
from clustersplit_cli.core.geometry.protocol import choose_landmarks
from clustersplit_cli.core.mmd.definition import Definition, SpelledKernel, unbiased
from clustersplit_cli.engines.checks import define_linear, define_nystrom
from clustersplit_cli.engines.samples import gather
from clustersplit_cli.pipeline.context import Streams
from clustersplit_cli.pipeline.sharded.engine import ShardedContext, ShardedFound
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check

NAME = "by definition"
TOLERANCE = {"dense": 1e-5, "linear": 1e-5, "nystrom": 1e-3}
"""The report's kernel may be in float32; a Nyström kernel's small eigenvalues are sensitive to that."""
ESTIMATE_TOLERANCE = 1e-5


def check_definition(
    report: Mapping[str, Any],
    found: Definition,
    geometry: str,
    n: int,
    slack_of_scatter: float = 0.0,
    estimate: float | None = None,
) -> Check:
    """Compare what a report states with sums of kernel values in float64.

    Parameters
    ----------
    n : rows.
    slack_of_scatter : by how much an estimate of the scatter may be off.
    estimate : the unbiased MMD² of the subsample, if that was computed too.
    """
    tolerance = TOLERANCE[geometry]
    # Rounding is relative to the scatter that the numbers are differences of.
    rounding = tolerance * abs(found.ssq_total)
    of_mmd, of_scatter = rounding / n, rounding + slack_of_scatter
    try:
        triples = {
            "mmd.value": (report["mmd"]["value"] ** 2, found.mmd_squared, of_mmd),
            "mmd.squared": (report["mmd"]["squared"], found.mmd_squared, of_mmd),
            "objective.psi": (report["objective"]["psi"], found.psi, of_scatter),
            "objective.ssq_total": (report["objective"]["ssq_total"], found.ssq_total, of_scatter),
        }
        wrong = [
            f"{key} gives {stated:.9g}, {NAME} {value:.9g}"
            for key, (stated, value, slack) in triples.items()
            if not abs(stated - value) <= max(tolerance * abs(value), slack)
        ]
        if report["parts"] is not None and found.pairs is not None:
            names = [part["name"] for part in report["parts"]["parts"]]
            for a, b in combinations(range(len(names)), 2):
                stated, value = report["parts"]["mmd"][a][b] ** 2, float(found.pairs[a, b])
                if not abs(stated - value) <= max(tolerance * abs(value), of_mmd):
                    wrong.append(f"the MMD² of {names[a]} and {names[b]} is {stated:.9g}, {NAME} {value:.9g}")
        if estimate is not None:
            stated = report["mmd"]["subsample"]["mmd_squared_unbiased"]
            if not abs(stated - estimate) <= ESTIMATE_TOLERANCE * max(abs(estimate), found.ssq_total / n):
                wrong.append(f"mmd.subsample gives {stated:.9g}, {NAME} {estimate:.9g}")
    except (KeyError, TypeError):
        return Check(NAME, FAILED, "the report states no MMD or no objective")
    if not np.isfinite([found.mmd_squared, found.psi, found.ssq_total]).all():
        return Check(NAME, SKIPPED, "the features are too large to be squared")
    if wrong:
        return Check(NAME, FAILED, "; ".join(wrong))
    return Check(NAME, OK, f"MMD {max(found.mmd_squared, 0.0) ** 0.5:.6g}, Psi {found.psi:.6g} in float64")


def check_sharded_definition(
    report: Mapping[str, Any], context: ShardedContext, given: ShardedFound
) -> Check:
    """Do the same for the labels that the engine's shards were given.

    All rows are summed in float64. The trace of a Nyström kernel, and the estimate under the exact kernel,
    come from the rows that the seed draws for them, which are brought together.
    """
    ahead, layout, options = context.kernel, context.engine.layout, context.options
    kernel, n = ahead.prepared.kernel, ahead.surveyed.n
    spelled = SpelledKernel(kernel.name, kernel.gamma, kernel.degree, options.standardize)
    moments = ahead.surveyed.moments
    shift = moments.mean
    if options.standardize == "zscore":
        deviation = np.where(moments.deviation > 0, moments.deviation, 1.0)
        spelled = replace(spelled, mean=moments.mean, rest=moments.rest, deviation=deviation)
        shift = np.zeros(layout.width)
    if kernel.origin is not None:
        spelled = replace(spelled, origin=shift)
    sizes = (given.refined.split.state.n_val, n)
    if ahead.mixing is None:
        found = define_linear(context.executor, spelled, shift, sizes)
        return check_definition(report, found, "linear", n)
    wanted = {
        "landmarks": choose_landmarks(n, ahead.plan.width, Streams.from_seed(options.seed).landmarks),
        "trace": trace_rows(n),
    }
    val, train = context.subsampled_rows(given.rule)
    if min(len(val), len(train)) > 1:
        wanted |= {"val": val, "train": train}
    at_hand = gather(context.executor, wanted, layout.width, layout.features.dtype)
    rows = {name: at_hand.rows(numbers) for name, numbers in wanted.items()}
    found = define_nystrom(context.executor, spelled, shift, sizes, rows["landmarks"], rows["trace"])
    estimate = None
    if "val" in rows:
        estimate = unbiased(spelled, *(spelled.rows(rows[side]) - shift for side in ("val", "train")))
    return check_definition(report, found, "nystrom", n, estimate=estimate)
