"""Is what a report states true? Its numbers against recomputed ones, and its trace against itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check

RELATIVE = 2e-8
"""Rounding differs between processors: by 1.5e-9 at most on those tried, after averaging over all rows."""
AVERAGED = 1e-9
"""The same in units of a row's scatter: MMD² is a difference of averages of that size, and may be small."""
SINGLE = 3e-7
"""The same of one row of a float32 kernel, which is all there is to average where rows are few."""
ALIKE = 1e-6
"""Random splits whose MMD spreads by a smaller share of it are all alike, but for rounding of the search."""
_NOISE = {"identity_residual": 1e-6, "gap": 1e-7}
"""Numbers that are nothing but rounding are compared by size, not by digits."""
_LOOSE = {"mmd_mean": 1e-5, "mmd_sd": 1e-3, "mmd_squared_unbiased": 1e-5, "standard_error": 1e-5}
"""Random splits are measured in the precision of the search; subsamples are small."""
_LOOSE |= {"mmd_upper": 1e-5, "fraction": 1e-5}
"""Eigensolvers stop at a tolerance."""
_DIFFERENCES_NAMED = 3

COMPARED = {
    "input": "input",
    "sizes": "sizes",
    "mmd": "MMD",
    "objective": "objective",
    "constraints": "stated cells",
    "certificate": "certificate",
    "bound": "bound",
    "baselines": "random baseline",
    "warnings": "warnings",
    "seed": "seed",
    "config": "configuration",
    "plan": "geometry",
    "parts": "parts",
}
"""Top-level keys of the report that follow from the input, the index files and the configuration alone."""
OF_WORKERS = ("versions_differ", "worker_not_used")
"""Warnings about the workers of a cluster."""
_OF_THE_MACHINE = {"memory", "threads", "bytes", "budget", "reason", "engine", "passes"}
_OF_THE_RUN = {"strategy", "leave", "restarts", "effort", "max_iter", "solver", "certify", "message"}
_OF_THE_RUN |= {"path", "features"}


def check_stated(stated: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Iterator[Check]:
    """Compare every part of the report that was recomputed; each is one check."""
    for key, name in COMPARED.items():
        if key not in recomputed:
            continue
        if key == "parts" and recomputed[key] is None and stated.get(key) is None:
            continue  # a split in two
        noise = _rounding_of(recomputed) if key in _ROUNDED else {}
        both = stated[key], recomputed[key]
        if key == "warnings":
            both = _without_workers(both[0]), _without_workers(both[1])
        wrong = list(differences(*both, key, noise))
        if wrong:
            more = f"; and {len(wrong) - _DIFFERENCES_NAMED} more" if len(wrong) > _DIFFERENCES_NAMED else ""
            yield Check(name, FAILED, "; ".join(wrong[:_DIFFERENCES_NAMED]) + more)
        elif recomputed[key] is None:
            yield Check(name, SKIPPED, "the report states none")
        else:
            told = _TOLD.get(key)
            yield Check(name, OK, told(recomputed[key]) if told else "as stated")


_ROUNDED = ("mmd", "objective", "certificate", "baselines")


def _without_workers(warnings: list[Any]) -> list[Any]:
    """The warnings that do not depend on which cluster made or verifies the run."""
    return [warning for warning in warnings if warning["code"] not in OF_WORKERS]


def _rounding_of(recomputed: Mapping[str, Any]) -> dict[str, float]:
    """How far numbers that may be next to nothing may be off on another processor or another engine."""
    found, objective, sizes = (recomputed.get(key) for key in ("mmd", "objective", "sizes"))
    if not (found and objective and sizes and sizes["train"]):
        return {}
    n = sizes["train"] + sizes["val"]
    averaged = max(AVERAGED, SINGLE / n)
    squared = averaged * objective["ssq_total"] / n
    # The square root of what is zero but for rounding is as large as that of the rounding.
    value = squared / max(2.0 * found["value"], math.sqrt(squared) or 1.0)
    of_sums = averaged * objective["ssq_total"]
    noise = {"squared": squared, "value": value, "mmd_squared_unbiased": squared, "standard_error": squared}
    noise |= {"psi": of_sums, "ssq_total": of_sums, "objective": of_sums}
    random = (recomputed.get("baselines") or {}).get("random")
    return noise | ({"mmd_sd": ALIKE * random["mmd_mean"]} if random else {})


def differences(
    stated: Any, recomputed: Any, place: str, noise: Mapping[str, float] = MappingProxyType({})
) -> Iterator[str]:
    """Walk both trees and say where they differ; `noise` is how far some leaves may."""
    leaf = place.rpartition(".")[2]
    if leaf in _OF_THE_MACHINE | _OF_THE_RUN:
        return
    if isinstance(recomputed, Mapping) and isinstance(stated, Mapping):
        keys = [*recomputed, *(key for key in stated if key not in recomputed)]
        for key in keys:
            yield from differences(stated.get(key), recomputed.get(key), f"{place}.{key}", noise)
    elif isinstance(recomputed, list) and isinstance(stated, list):
        if len(stated) != len(recomputed):
            yield f"{place} has {len(stated)} entries in the report, recomputed {len(recomputed)}"
            return
        for index, (said, found) in enumerate(zip(stated, recomputed, strict=True)):
            name = f"{place}[{_cell_name(found) or index}]"
            yield from differences(said, found, name, noise)
    elif not _same(stated, recomputed, leaf, noise.get(leaf, 0.0)):
        yield f"{place} is {_short(stated)} in the report, recomputed {_short(recomputed)}"


def check_trace(report: Mapping[str, Any]) -> Check:
    """Check that the trace falls, ends at the stated Psi, and agrees with what else is said of the search."""
    try:
        wrong = list(_trace_faults(report))
        steps = len(report["trace"])
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        return Check("trace", FAILED, f"the trace, search or restarts are malformed ({error})")
    if wrong:
        return Check("trace", FAILED, "; ".join(wrong[:_DIFFERENCES_NAMED]))
    return Check("trace", OK, f"{steps} points, never rising, ending at the stated Psi")


def _trace_faults(report: Mapping[str, Any]) -> Iterator[str]:
    trace, psi = report["trace"], report["objective"]["psi"]
    if not trace:
        yield "the trace is empty"
        return
    for number, point in enumerate(trace):
        if point["iteration"] != number:
            yield f"trace[{number}] says it is iteration {point['iteration']}"
    for number, (before, after) in enumerate(pairwise(trace), start=1):
        if after["psi"] > before["psi"]:
            yield f"trace[{number}].psi rises from {before['psi']} to {after['psi']}"
    rounding = AVERAGED * abs(report["objective"]["ssq_total"])
    if not _same(trace[-1]["psi"], psi, "psi", rounding):
        yield f"the trace ends at {trace[-1]['psi']}, but Psi is {psi}"
    gained: dict[str, float] = {}
    for before, after in pairwise(trace):
        gained[after["phase"]] = gained.get(after["phase"], 0.0) + before["psi"] - after["psi"]
    yield from differences(report["search"]["gained"], gained, "search.gained")
    best = min(report["restarts"], key=lambda run: run["psi"])
    if best["psi"] < psi - max(1e-6 * abs(psi), rounding):
        yield f"start {best['start']} ended at {best['psi']}, below the stated Psi {psi}"
    winner = [run for run in report["restarts"] if run["start"] == report["search"]["winner"]]
    if not winner:
        yield f"the winner {report['search']['winner']} is none of the restarts"


def _same(stated: Any, recomputed: Any, leaf: str, noise: float = 0.0) -> bool:
    numbers = all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in (stated, recomputed)
    )
    if not numbers:
        return type(stated) is type(recomputed) and bool(stated == recomputed)
    if isinstance(recomputed, int) and isinstance(stated, int):
        return bool(stated == recomputed)
    if leaf in _NOISE:
        return bool(abs(stated - recomputed) <= _NOISE[leaf])
    return math.isclose(stated, recomputed, rel_tol=_LOOSE.get(leaf, RELATIVE), abs_tol=noise or 1e-300)


def _cell_name(entry: Any) -> str:
    """Name a cell or a file by what it is; other entries go by number."""
    if not isinstance(entry, Mapping):
        return ""
    if isinstance(entry.get("cell"), Mapping):
        return ", ".join(f"{word}={value}" for word, value in entry["cell"].items()) or "all rows"
    return str(entry.get("path", ""))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


_TOLD: dict[str, Callable[[Any], str]] = {
    "input": lambda said: f"{len(said['files'])} files with the stated hashes, {said['n_rows']} rows",
    "sizes": lambda said: (
        f"{said['train']} training and {said['val']} validation rows" if said["train"] else "as stated"
    ),
    "mmd": lambda said: f"{said['value']:.6g} under the {said['kernel']} kernel",
    "objective": lambda said: f"Psi {said['psi']:.6g} of total scatter {said['ssq_total']:.6g}",
    "certificate": lambda said: f"{said['status']} by {said['backend']}, gap {said['gap']:.2g}",
    "bound": lambda said: f"MMD at most {said['mmd_upper']:.6g}",
}
