"""Do MMD, Psi and scatter agree with their definitions?"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from clustersplit_cli.pipeline.result import ByDefinition
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check

NAME = "by definition"
TOLERANCE = {"dense": 1e-5, "linear": 1e-5, "low-rank": 1e-5, "nystrom": 1e-3}
"""The report's kernel may be in float32; a Nyström kernel's small eigenvalues are sensitive to that."""
ESTIMATE_TOLERANCE = 1e-5


def check_definition(report: Mapping[str, Any], by: ByDefinition) -> Check:
    """Compare what a report states with sums of kernel values in float64."""
    found, n, estimate = by.found, by.n, by.estimate
    tolerance = TOLERANCE[by.geometry]
    # Rounding is relative to the scatter that the numbers are differences of.
    rounding = tolerance * abs(found.ssq_total)
    of_mmd, of_scatter = rounding / n, rounding + by.scatter_error
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
