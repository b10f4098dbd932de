"""Is what a report states true? Its numbers against recomputed ones, and its trace against itself."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from clustersplit_cli.core.baselines import ANOTHER_OPTIMUM, LEAVE_ONE_DOMAIN_OUT, STRATEGIES
from clustersplit_cli.core.bound.bound import PROVEN
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.options import WORST
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check

RELATIVE = 2e-8
"""Rounding differs between processors: by 1.5e-9 at most on those tried, after averaging over all rows."""
AVERAGED = 1e-9
"""The same in units of a row's scatter: MMD² is a difference of averages of that size, and may be small."""
FEW, OF_FEW = 300, 1e-6
"""Fewer rows leave little to average, and equal ones nothing: up to 3.6e-7 for kernels held in float32."""
ALIKE = 1e-6
"""Random splits whose MMD spreads by a smaller share of it are all alike, but for rounding of the search."""
_NOISE = {"identity_residual": 1e-6, "gap": 1e-7}
"""Numbers that are nothing but rounding are compared by size, not by digits."""
_LOOSE = {"mmd_mean": 1e-5, "mmd_sd": 1e-3, "mmd_squared_unbiased": 1e-5, "standard_error": 1e-5}
_LOOSE |= {"random_mmd": 1e-5, "asked": 1e-5, "severity_reached": 1e-4}
"""Random splits are measured in the precision of the search; subsamples are small."""
_LOOSE |= {"mmd_upper": 5e-5, "fraction": 5e-5}
"""Eigensolvers stop at a tolerance; bounds differed by up to 1.4e-5 between processors."""
_LOOSE |= {"severity": 1e-4, "effective_size": 1e-3, "largest": 1e-2}
"""So does the search for weights."""
_DIFFERENCES_NAMED = 3
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")

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
    "graded": "severity",
    "target": "target",
}
"""Top-level keys of the report that follow from the input, the index files and the configuration alone."""
OF_WORKERS = ("versions_differ", "worker_not_used")
"""Warnings about the workers of a cluster."""
_OF_ANOTHER_ENGINE = ("column_in_both", "not_converged")
"""Warnings whose words name paths, or an option that not every engine has."""
UNCHECKED = (
    *("tool.*", "timing.*", "plan.bytes", "plan.reason", "config.features", "config.threads"),
    *("plan.seconds", "plan.rank"),
    *(
        "config.restarts",
        "config.max_iter",
        "config.solver",
        "config.certify",
        "config.bound",
        "config.passes",
    ),
    *("config.drop_invalid", "config.strategy", "config.leave", "config.n_splits", "search.programs.*"),
    *("restarts[].start", "restarts[].iterations", "restarts[].converged"),
    *("restarts[].trace[]",),
    *("engine.workers", "engine.shards", "engine.sample_rows", "engine.factors", "engine.factor_bytes"),
    *("engine.passes", "engine.source_bytes", "engine.spill_bytes", "engine.rows_per_second"),
)
"""Places in a report where some change cannot be told; docs/verify.md says why, of each."""
_UNCHECKED = re.compile("|".join(re.escape(each).replace(r"\*", ".*") for each in UNCHECKED))
_ELSEWHERE = (
    "config.memory",
    "config.effort",
    "config.engine",
    "plan.budget",
    "input.files[].path",
    "bound.proven_optimal",
    "warnings[].message",
)
"""Places that other checks look at."""
_COARSE = 1e-5
"""How far the Psi of starts may be off, in units of the scatter: they may be measured in float32."""
LONGEST_TRACE = 24


def check_stated(
    stated: Mapping[str, Any], recomputed: Mapping[str, Any], *, moved: bool = False
) -> Iterator[Check]:
    """Compare every part of the report that was recomputed; each is one check.

    Parameters
    ----------
    moved : whether files are where the user says, and not at their paths in the report.
    """
    for key, name in COMPARED.items():
        if key not in recomputed:
            continue
        if key in ("parts", "graded", "target") and recomputed[key] is None and stated.get(key) is None:
            continue  # a split in two, that is not graded, without a target
        noise = _rounding_of(recomputed) if key in _ROUNDED else {}
        both = stated[key], recomputed[key]
        if key == "warnings":
            both = _without_workers(both[0]), _without_workers(both[1])
        wrong = list(differences(*both, key, noise))
        if key == "input" and not moved:
            wrong += _path_faults(*both)
        if key == "bound":
            wrong += _proof_faults(*both)
        if key == "warnings":
            wrong += _warning_faults(*both)
        if wrong:
            more = f"; and {len(wrong) - _DIFFERENCES_NAMED} more" if len(wrong) > _DIFFERENCES_NAMED else ""
            yield Check(name, FAILED, "; ".join(wrong[:_DIFFERENCES_NAMED]) + more)
        elif recomputed[key] is None:
            yield Check(name, SKIPPED, "the report states none")
        else:
            told = _TOLD.get(key)
            yield Check(name, OK, told(recomputed[key]) if told else "as stated")


_ROUNDED = ("mmd", "objective", "certificate", "baselines", "bound", "parts")


def _without_workers(warnings: list[Any]) -> list[Any]:
    """The warnings that do not depend on which cluster made or verifies the run."""
    return [warning for warning in warnings if warning["code"] not in OF_WORKERS]


def _rounding_of(recomputed: Mapping[str, Any]) -> dict[str, float]:
    """How far numbers that may be next to nothing may be off on another processor or another engine."""
    found, objective, sizes = (recomputed.get(key) for key in ("mmd", "objective", "sizes"))
    parts = recomputed.get("parts")
    counts = [part["size"] for part in parts["parts"]] if parts else list((sizes or {}).values())
    if not (found and objective and all(counts)):
        return {}
    n = sum(counts)
    averaged = AVERAGED if (min(counts) if parts else n) >= FEW else OF_FEW
    squared = averaged * objective["ssq_total"] / n
    # The square root of what is zero but for rounding is as large as that of the rounding.
    value = squared / max(2.0 * found["value"], math.sqrt(squared) or 1.0)
    of_sums = averaged * objective["ssq_total"]
    if found["error"]:  # which pivots are drawn depends on the last digits, and with them what is left
        squared += found["error"]
        value += found["error"] / found["value"] if found["value"] else 0.0
    noise = {
        "squared": squared,
        "value": value,
        "error": found["error"] or 0.0,
        "exact": value,
        "mmd_squared_unbiased": squared,
        "standard_error": squared,
    }
    noise |= {"psi": of_sums, "ssq_total": of_sums, "objective": of_sums}
    most = (recomputed.get("bound") or {}).get("mmd_upper")
    if most is not None:  # a bound of next to nothing, and the share of it that was reached
        of_bound = squared / max(2.0 * most, math.sqrt(squared) or 1.0)
        noise |= {"mmd_upper": of_bound, "fraction": of_bound / (max(most, of_bound) or 1.0)}
    if parts:  # the least MMD of all has the most rounding
        least = min([value for row in parts["mmd"] for value in row if value] or [0.0])
        noise["mmd[][]"] = noise["mmd_rest"] = squared / max(2.0 * least, math.sqrt(squared) or 1.0)
    random = (recomputed.get("baselines") or {}).get("random")
    return noise | ({"mmd_sd": ALIKE * random["mmd_mean"]} if random else {})


def differences(
    stated: Any,
    recomputed: Any,
    place: str,
    noise: Mapping[str, float] = MappingProxyType({}),
    kind: str = "",
) -> Iterator[str]:
    """Walk both trees and say where they differ; `noise` is how far some leaves may.

    `kind` is the place without numbers and names of entries.
    """
    kind = kind or place
    leaf = kind.rpartition(".")[2]
    if is_unchecked(kind) or kind in _ELSEWHERE:
        return
    if isinstance(recomputed, Mapping) and isinstance(stated, Mapping):
        keys = [*recomputed, *(key for key in stated if key not in recomputed)]
        for key in keys:
            yield from differences(
                stated.get(key), recomputed.get(key), f"{place}.{key}", noise, f"{kind}.{key}"
            )
    elif isinstance(recomputed, list) and isinstance(stated, list):
        if len(stated) != len(recomputed):
            yield f"{place} has {len(stated)} entries in the report, recomputed {len(recomputed)}"
            return
        for index, (said, found) in enumerate(zip(stated, recomputed, strict=True)):
            name = f"{place}[{_cell_name(found) or index}]"
            yield from differences(said, found, name, noise, f"{kind}[]")
    elif not _same(stated, recomputed, leaf, noise.get(leaf, 0.0)):
        yield f"{place} is {_short(stated)} in the report, recomputed {_short(recomputed)}"


def _proof_faults(stated: Mapping[str, Any] | None, recomputed: Mapping[str, Any] | None) -> Iterator[str]:
    """Whether the share that is stated is a proof: recomputed, it may round to the other side."""
    if stated and recomputed:
        said, share = stated["proven_optimal"], stated["fraction"]
        if said != (recomputed["kernel"] == "exact" and share**2 >= 1.0 - PROVEN):
            yield f"bound.proven_optimal is {said} where the fraction is {share}"


def is_unchecked(kind: str) -> bool:
    """Whether a place is one where some change cannot be told."""
    return _UNCHECKED.fullmatch(kind) is not None


def _warning_faults(stated: list[Any], recomputed: list[Any]) -> Iterator[str]:
    """Say where the words of warnings differ; numbers may by one in their last digit."""
    for number, (said, found) in enumerate(zip(stated, recomputed, strict=False)):
        if said["code"] == found["code"] not in _OF_ANOTHER_ENGINE:
            texts = [_NUMBER.split(each["message"]) for each in (said, found)]
            numbers = [_NUMBER.findall(each["message"]) for each in (said, found)]
            if texts[0] != texts[1] or not all(map(_are_close, *numbers)):
                words = _short(said["message"]), _short(found["message"])
                yield f"warnings[{number}] says {words[0]}, recomputed {words[1]}"


def _are_close(one: str, other: str) -> bool:
    """Whether two decimals are at most one apart in the last digit of the coarser."""
    a, b = Decimal(one), Decimal(other)
    last = max(int(a.as_tuple().exponent), int(b.as_tuple().exponent))
    return abs(a - b) <= Decimal(1).scaleb(last)


def best_psi(report: Mapping[str, Any]) -> float:
    """The objective at which the search ended; that of a graded split, or of another aim, is another."""
    grade, target = report["graded"], report["target"]
    if grade is None and target is not None:
        grade = target
    best = None if grade is None else grade["best_psi"]
    return float(report["objective"]["psi"] if best is None else best)


def check_account(report: Mapping[str, Any]) -> Iterator[Check]:
    """Check what a report says of the search and of the machine against what else it says."""
    searched = report["search"] is not None
    for name, faults, fine in (
        ("trace", _trace_faults, f"{len(report['trace'])} points, never rising, ending at the stated Psi"),
        ("restarts", _restart_faults, f"{len(report['restarts'])}, none better than the winner"),
        ("range", _range_faults, "its upper end is where the search ended, and within the bound"),
        ("engine and plan", _plan_faults, "agree with the configuration"),
    ):
        wrong = list(faults(report))
        if wrong:
            yield Check(name, FAILED, "; ".join(wrong[:_DIFFERENCES_NAMED]))
        elif faults is _plan_faults or (searched and (faults is not _range_faults or report["graded"])):
            yield Check(name, OK, fine)


def _aim(report: Mapping[str, Any]) -> str:
    """What validation was to be."""
    return WORST if report["target"] is None else str(report["target"]["aim"])


def _trace_faults(report: Mapping[str, Any]) -> Iterator[str]:
    trace, psi = report["trace"], best_psi(report)
    if report["search"] is None:
        is_lookalike = report["engine"] is not None and _aim(report) != WORST
        if trace or (report["config"].get("strategy") is None and not is_lookalike):
            yield "the report says nothing of a search" + (", and has a trace" if trace else "")
        return
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
    if trace[0]["phase"] != "start":
        yield f"the trace begins with {_short(trace[0]['phase'])}, not with 'start'"
    gained: dict[str, float] = {}
    for before, after in pairwise(trace):
        gained[after["phase"]] = gained.get(after["phase"], 0.0) + before["psi"] - after["psi"]
    yield from differences(report["search"]["gained"], gained, "search.gained")


def _restart_faults(report: Mapping[str, Any]) -> Iterator[str]:
    """Starts end where their own traces do, none below the winner, as many as were asked for."""
    restarts, search, config = report["restarts"], report["search"], report["config"]
    if search is None:
        if restarts:
            yield "there are restarts, but no search"
        return
    if search["effort"] not in EFFORTS or search["effort"] != config.get("effort"):
        yield f"search.effort is {search['effort']!r}, and config.effort {config.get('effort')!r}"
    wanted = config.get("restarts") if report["engine"] is None else 1
    if len(restarts) != wanted:
        yield f"there are {len(restarts)} restarts, and should be {wanted}"
    names = [run["start"] for run in restarts]
    if len(set(names)) < len(names):
        yield "two restarts have the same name"
    psi, scatter = best_psi(report), abs(report["objective"]["ssq_total"])
    slack = _COARSE * scatter
    if search["winner"] not in names:
        yield f"the winner {search['winner']} is none of the restarts"
    for run in restarts:
        is_winner = run["start"] == search["winner"]
        if run["psi"] < psi - slack or (is_winner and run["psi"] > psi + slack):
            what = "the winner" if is_winner else f"start {run['start']}"
            yield f"{what} ended at {run['psi']}, {'not at' if is_winner else 'below'} the stated Psi {psi}"
        trace = run["trace"]
        if any(after > before + slack for before, after in pairwise(trace)):
            yield f"the trace of start {run['start']} rises"
        if trace and abs(trace[-1] - run["psi"]) > slack:
            yield f"the trace of start {run['start']} ends at {trace[-1]}, and the start at {run['psi']}"
        steps = min(run["iterations"] + 1, LONGEST_TRACE)
        if report["engine"] is None and len(trace) < steps:
            yield f"start {run['start']} took {run['iterations']} steps, its trace has {len(trace)} points"
        if not _go_together(report, run["mmd"], run["psi"], OF_FEW):
            yield f"start {run['start']} has MMD {run['mmd']}, which does not go with its Psi {run['psi']}"


def _range_faults(report: Mapping[str, Any]) -> Iterator[str]:
    """The upper end of the range of severities is the MMD at which the search ended."""
    grade, bound = report["graded"], report["bound"]
    if grade is None:
        return
    best, psi = grade["best_mmd"], grade["best_psi"]
    if not _go_together(report, best, psi, AVERAGED):
        yield f"graded.best_mmd is {best}, which does not go with its Psi {psi}"
    if bound and best > bound["mmd_upper"] * (1.0 + _LOOSE["mmd_upper"]):
        yield f"graded.best_mmd is {best}, above the bound {bound['mmd_upper']}"


def _go_together(report: Mapping[str, Any], mmd: float, psi: float, slack: float) -> bool:
    """Whether MMD² times the pairs of rows in different parts is n times the scatter that is explained."""
    n, fewest, most = _pairs_allowed(report)
    scatter = report["objective"]["ssq_total"]
    explained, rounding = n * max(scatter - psi, 0.0), slack * n * abs(scatter)
    return bool(mmd**2 * fewest - rounding <= explained <= mmd**2 * most + rounding)


def _pairs_allowed(report: Mapping[str, Any]) -> tuple[int, float, float]:
    """The rows, and the fewest and the most pairs of them in different parts that all bounds allow."""
    split, parts, units = report["sizes"], report["parts"], report["constraints"]["units"]
    if parts is None:
        n = split["train"] + split["val"]
        val = _bounds_of_totals(report["constraints"]["cells"], n)
        bounds = [val, (n - val[1], n - val[0])]
    else:
        sizes = [part["size"] for part in parts["parts"]]
        n = sum(sizes)
        bounds = [
            _bounds_of_totals(report["constraints"]["cells"], n, part["name"]) for part in parts["parts"]
        ]
        if units is not None:
            return n, n - 1.0, n * n / 2.0  # starts need not be within the tolerance that the winner needs
        if max(sizes) - min(sizes) <= 1:
            bounds = [(size, size) for size in sizes]  # folds, whichever of them have one row more
    squares = [sum(float(count) ** 2 for count in counts) for counts in zip(*bounds, strict=True)]
    return n, (n * n - min(squares[1], float(n * n))) / 2.0, (n * n - squares[0]) / 2.0


def _bounds_of_totals(cells: list[Any], n: int, part: str | None = None) -> tuple[int, int]:
    """The least and the most rows that the cells of every family leave to a part, or to validation."""
    least, most = dict[str, int](), dict[str, int]()
    for cell in cells:
        if cell["part"] == part:
            least[cell["family"]] = least.get(cell["family"], 0) + cell["lower"]
            most[cell["family"]] = most.get(cell["family"], 0) + cell["upper"]
    return max(least.values(), default=0), min(most.values(), default=n)


def _plan_faults(report: Mapping[str, Any]) -> Iterator[str]:
    """The plan, the engine and the strategy are said twice, or bound each other."""
    plan, config, engine = report["plan"], report["config"], report["engine"]
    if plan["budget"] != config.get("memory"):
        yield f"plan.budget is {plan['budget']}, and config.memory {config.get('memory')}"
    if plan["bytes"] > plan["budget"]:
        yield f"plan.bytes is {plan['bytes']}, more than plan.budget {plan['budget']}"
    stated = config.get("engine") or "local"
    if stated != (engine["name"] if engine else "local"):
        yield f"config.engine is {stated!r}, and engine.name {engine['name'] if engine else None!r}"
    passes = config.get("passes")
    if engine and passes is not None and engine["passes"] > passes:
        yield f"engine.passes is {engine['passes']}, more than config.passes {passes}"
    if (passes is not None) != (engine is not None and report["search"] is not None):
        yield f"config.passes is {passes}, which contradicts the engine or the search"
    strategy, leave = config.get("strategy"), config.get("leave")
    is_known = strategy in (None, ANOTHER_OPTIMUM, *STRATEGIES)
    if not is_known or (leave is not None) != (strategy == LEAVE_ONE_DOMAIN_OUT):
        yield f"config.strategy is {strategy!r} and config.leave {leave!r}, which no run has"
    if strategy is not None and report["search"] is not None:
        yield f"config.strategy is {strategy!r}, which does not search"


def _path_faults(stated: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Iterator[str]:
    """Files have the paths under which they were found, apart from where a relative one begins."""
    for said, found in zip(stated["files"], recomputed["files"], strict=False):
        if not f"/{found['path']}".endswith(f"/{said['path']}") and said["path"] != found["path"]:
            yield f"{_short(said['path'])} in the report was read as {_short(found['path'])}"


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
