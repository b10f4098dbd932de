"""The end of a run as a compact table, and the memory plan as one line, for people at a terminal."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clustersplit_cli.reports.formatting import (
    human_bytes,
    human_count,
    human_number,
    human_percent,
    human_seconds,
    printable,
    worst_case,
)
from clustersplit_cli.reports.summary import (
    Bound,
    CellSummary,
    Certificate,
    ConstraintsSummary,
    Notice,
    Plan,
    Report,
)

if TYPE_CHECKING:
    from rich.console import Console

_UNSATISFIED_SHOWN = 3
_NARROWEST_VALUE = 20
_ROUNDING = 1e-7
"""Random splits may be measured in float32: relative to their mean, a smaller deviation says nothing."""


@dataclass(frozen=True)
class Row:
    """One line of the table: a label and clauses that are kept whole where the width allows it.

    `style` is that of the first clause, `items` come below the clauses, one per line.
    """

    label: str
    clauses: tuple[str, ...]
    style: str = "bold"
    items: tuple[str, ...] = ()


def render_summary(
    report: Report, outputs: Sequence[Path] = (), *, console: Console, verbose: bool = False
) -> None:
    """Print the table, the warnings and the paths written.

    Nothing is shortened to fit: the table wraps between clauses, warnings and paths are left to the terminal.

    Parameters
    ----------
    verbose : all rows of the table, and each path on its own line.
    """
    render_rows(all_rows(report) if verbose else summary_rows(report), console=console)
    render_warnings(report, console=console)
    if verbose:
        for path in outputs:
            show(console, ("wrote ", "dim"), (printable(path), ""))
        return
    folders: dict[Path, list[str]] = {}
    for path in outputs:
        folders.setdefault(path.parent, []).append(printable(path.name))
    for folder, names in folders.items():
        where = "" if folder == Path() else f"{printable(folder)}: "
        show(console, ("wrote ", "dim"), (f"{where}{', '.join(names)}", ""))


def render_rows(rows: Sequence[Row], *, console: Console) -> None:
    """Print a table of labels and clauses, wrapped between clauses."""
    indent = max(len(row.label) for row in rows) + 2
    for row in rows:
        width = max(console.width - indent, _NARROWEST_VALUE)
        lines = _fill(row.clauses, width) + [line for item in row.items for line in _fill((item,), width)]
        # The first clause may itself be wrapped; then the whole first line is a part of it.
        lead = min(len(row.clauses[0]), len(lines[0]))
        show(console, (row.label.ljust(indent), "cyan"), (lines[0][:lead], row.style), (lines[0][lead:], ""))
        for line in lines[1:]:
            show(console, (" " * indent + line, ""))


def render_warnings(report: Report, *, console: Console) -> None:
    """Print the report's warnings, one per line."""
    render_notices(report.warnings, console=console)


def render_notices(notices: Iterable[Notice], *, console: Console) -> None:
    """Print warnings, one per line."""
    for notice in notices:
        show(console, ("warning: ", "bold yellow"), (printable(notice.message), ""))


def render_plan(plan: Plan, *, kernel: str) -> str:
    """Say in one line how the kernel is held, what that takes, and why."""
    held = kernel if plan.geometry == kernel else f"{plan.geometry} {kernel}"
    held += _width(plan)
    needed = f"{human_bytes(plan.bytes)} of {human_bytes(plan.budget)} budget"
    expected = "" if plan.seconds is None else f"about {human_seconds(plan.seconds)}"
    return ", ".join(part for part in (f"kernel: {held}", needed, printable(plan.reason), expected) if part)


def _width(plan: Plan) -> str:
    """What a kernel that is not held as it is is held by."""
    if plan.landmarks is not None:
        return f" with {human_count(plan.landmarks)} landmarks"
    return "" if plan.rank is None else f" with up to {human_count(plan.rank)} factors"


def summary_rows(report: Report) -> list[Row]:
    """Put what a user has to know into words: the sizes, the MMD, and whether the constraints hold."""
    certificate = report.certificate
    rows = [
        *([_two_sizes(report)] if report.parts is None else _sizes(report)),
        _left_out(report),
        _compared(report),
        _severity(report),
        _worst_case(report),
        _constraints(report.constraints.cells),
        _units(report.constraints),
        _pinned(report.constraints),
        _tolerance(report.constraints),
        None if certificate is None or _is_proven(certificate) else _certificate(report),
    ]
    return [row for row in rows if row is not None]


def all_rows(report: Report) -> list[Row]:
    """Put the whole report into words, in the order in which one would ask."""
    rows = [
        *_sizes(report),
        _left_out(report),
        _discrepancy(report),
        _random(report),
        _severity(report),
        _subsample(report),
        _bound(report),
        *_target(report),
        _objective(report),
        _constraints(report.constraints.cells),
        _units(report.constraints),
        _pinned(report.constraints),
        _tolerance(report.constraints),
        _certificate(report),
        _kernel(report),
        _time(report),
    ]
    return [row for row in rows if row is not None]


def _sizes(report: Report) -> list[Row]:
    """One row per side or part."""
    sizes = {"train": report.sizes.train, "validation": report.sizes.val}
    if report.parts is not None:
        sizes = {part.name: part.size for part in report.parts.parts}
    counts = {name: size for name, size in sizes.items() if size is not None}
    total, digits = sum(counts.values()), len(human_count(max(counts.values(), default=0)))
    rows = [Row(name, _size(size, total, digits)) for name, size in counts.items()]
    if report.parts is not None:
        for row, part in enumerate(report.parts.parts):
            distance = f"MMD {human_number(part.mmd_rest)} to the rest"
            chance = ("drawn at random",) if part.drawn else ()
            rows[row] = replace(rows[row], clauses=(*rows[row].clauses, distance, *chance))
    return rows


def _size(side: int, total: int, digits: int) -> tuple[str, ...]:
    return (f"{human_count(side):>{digits}} rows", human_percent(side / max(total, 1)))


def _left_out(report: Report) -> Row | None:
    counts = ((report.input.n_excluded, "excluded"), (report.input.n_dropped, "dropped as not finite"))
    clauses = tuple(f"{human_count(count)} rows {why}" for count, why in counts if count)
    return Row("left out", clauses) if clauses else None


def _two_sizes(report: Report) -> Row:
    train, val = report.sizes.train or 0, report.sizes.val or 0
    share = human_percent(val / max(train + val, 1))
    return Row("rows", (f"{human_count(train)} train", f"{human_count(val)} validation ({share})"))


def _compared(report: Report) -> Row:
    """The MMD beside that of random splits and the largest possible, all in one unit."""
    value, random = report.mmd.value, report.baselines.random
    clauses = [human_number(value)]
    if random.mmd_mean > 0:
        times = human_number(value / random.mmd_mean, 3)
        clauses.append(f"{times} times the random mean of {human_number(random.mmd_mean)}")
    if report.bound is not None:
        (share, *_), most = _bound_clauses(report, report.bound), human_number(report.bound.mmd_upper)
        clauses.append(f"{share} ({most})")
    if report.plan.landmarks is not None:
        clauses.append(f"approximated with {human_count(report.plan.landmarks)} landmarks")
    return Row("MMD", tuple(clauses))


def _discrepancy(report: Report) -> Row:
    random = report.baselines.random
    value = report.mmd.value
    clauses = [human_number(value)]
    if random.mmd_mean > 0:
        clauses.append(f"{human_number(value / random.mmd_mean, 3)} times the random mean")
    if random.mmd_sd > _ROUNDING * random.mmd_mean:
        distance = (value - random.mmd_mean) / random.mmd_sd
        clauses.append(f"{human_number(abs(distance), 3)} sd {'above' if distance >= 0 else 'below'} it")
    return Row("MMD", tuple(clauses))


def _random(report: Report) -> Row:
    random = report.baselines.random
    alike = "with the same quotas" if report.config.get("leave") is None else "of the same size"
    mean = f"{human_number(random.mmd_mean)} (sd {human_number(random.mmd_sd, 2)})"
    return Row("random MMD", (mean, f"mean of {human_count(random.n)} splits {alike}"), "")


def _subsample(report: Report) -> Row | None:
    check = report.mmd.subsample
    if check is None:
        return None
    if report.mmd.exact is not None:
        return Row("exact kernel", (f"MMD {human_number(report.mmd.exact)}", "of all rows"))
    # The estimate is of the square, and may be negative: a root of its own it has not, but its limits have.
    reach = 2 * check.standard_error
    low, high = (max(check.mmd_squared_unbiased + by, 0.0) ** 0.5 for by in (-reach, reach))
    estimate = f"MMD between {human_number(low)} and {human_number(high)} (95%)"
    return Row("exact kernel", (estimate, f"estimated on {human_count(check.size)} rows"))


def _severity(report: Report) -> Row | None:
    grade = report.graded
    if grade is None:
        return None
    kind = "partition" if report.parts else "split"
    reached = grade.severity_reached
    clauses = [f"{grade.severity if reached is None else reached:.3g}"]
    if grade.severity == 0:
        clauses[0] = f"0: an ordinary stratified random {kind}"
    clauses.append(f"MMD {human_number(grade.asked)} asked for")
    ends = f"{human_number(grade.random_mmd)} (random) to {human_number(grade.best_mmd)} (best found)"
    return Row("severity", (*clauses, f"of the range {ends}"))


def _bound(report: Report) -> Row | None:
    return None if report.bound is None else Row("bound", tuple(_bound_clauses(report, report.bound)))


def _bound_clauses(report: Report, bound: Bound) -> list[str]:
    grade, fraction, whose = report.graded, bound.fraction, ""
    if grade is not None:
        fraction = grade.best_mmd / bound.mmd_upper if bound.mmd_upper > 0 else 1.0
        whose = "the best found has "
    percent = min(math.floor(100 * fraction + 1e-9), 100)  # down: "at least" has to be true
    clauses = [
        f"{whose}at least {percent}% of the best possible" if not bound.proven_optimal else "proven optimal",
        f"MMD at most {human_number(bound.mmd_upper)}",
    ]
    if bound.kernel != "exact":
        clauses.append("for the Nystrom kernel only")
    return clauses


def _worst_case(report: Report) -> Row | None:
    """Whether validation is a worst case for the target."""
    target = report.target
    if target is None:
        return None
    farthest = max(target.mmd_train, target.mmd_val)
    said = worst_case(passed=target.valid, between=report.mmd.value, farthest=farthest, rows="the target is")
    return Row("target", said, "bold green" if target.valid else "bold red")


def _target(report: Report) -> list[Row]:
    """How far the target is, and what was made of that."""
    target = report.target
    if target is None:
        return []
    shift = f"MMD {human_number(target.mmd)} from all rows (p {human_number(target.p_value, 2)})"
    whole = [f"{human_count(target.n_rows)} rows", shift]
    if target.severity is not None:
        beyond = ", farther than any validation set of these rows" if target.severity > 1 else ""
        whole.append(f"severity {human_number(target.severity, 3)}{beyond}")
    sides = [
        f"{human_number(target.mmd_train)} from training",
        f"{human_number(target.mmd_val)} from validation",
    ]
    checked = _worst_case(report)
    assert checked is not None
    rows = [
        Row("target", tuple(whole)),
        Row("to target", tuple(sides), ""),
        replace(checked, label="worst case"),
    ]
    found = target.certificate
    if found is not None:
        proven = found.status in ("optimal", "no exchange gains")
        clauses = [target.aim]
        if found.method == "relaxation":
            value, bound = (human_number(max(each, 0.0) ** 0.5) for each in (found.value, found.bound))
            clauses += [f"distance {value}", f"of no split below {bound}", found.status]
        else:
            clauses.append(f"{found.status} by {found.backend}")
        rows.append(Row("aim", tuple(clauses), "bold green" if proven else "bold red"))
    if target.weights is not None:
        size = f"{human_number(target.weights.effective_size, 4)} rows of equal weight"
        rows.append(Row("weights", (f"worth {size}", f"weighted MMD {human_number(target.weights.mmd)}")))
    return rows


def _objective(report: Report) -> Row:
    objective = report.objective
    clauses = [f"psi {human_number(objective.psi)}"]
    if objective.ssq_total > 0:
        clauses.append(f"{human_percent(objective.psi / objective.ssq_total)} of the total scatter")
    phases = Counter(point.phase for point in report.trace[1:])
    steps = " + ".join(f"{human_count(count)} {phase}" for phase, count in phases.items()) or "no"
    is_searched_for = report.target is None or report.target.aim in ("worst", "severity")
    if report.trace and is_searched_for:  # another has none
        to = "" if report.graded is None else " to the best found"
        clauses.append(f"{steps} {'step' if phases.total() == 1 else 'steps'}{to}")
    if len(report.restarts) > 1 and is_searched_for:
        clauses.append(f"best of {human_count(len(report.restarts))} starts")
    unfinished = sum(not restart.converged for restart in report.restarts)
    if unfinished:
        clauses.append(
            f"{human_count(unfinished)} of them not converged"
            if len(report.restarts) > 1
            else "not converged"
        )
    return Row("objective", tuple(clauses))


def _constraints(cells: Sequence[CellSummary]) -> Row:
    missed = [cell for cell in cells if not cell.satisfied]
    met = f"{human_count(len(cells) - len(missed))} of {human_count(len(cells))} cells satisfied"
    items = [_missed_cell(cell) for cell in missed[:_UNSATISFIED_SHOWN]]
    if len(missed) > _UNSATISFIED_SHOWN:
        items.append(f"and {human_count(len(missed) - _UNSATISFIED_SHOWN)} more")
    return Row("constraints", (met,), "bold red" if missed else "bold green", tuple(items))


def _units(constraints: ConstraintsSummary) -> Row | None:
    units = constraints.units
    if units is None:
        return None
    found = f"{human_count(units.count)} kept whole"
    if units.divided:
        found = f"{human_count(units.divided)} of {human_count(units.count)} divided"
    largest = f"the largest of {human_count(units.largest)} rows"
    by = f"by {printable(units.column)}"
    return Row("units", (found, by, largest), "bold red" if units.divided else "bold green")


def _pinned(constraints: ConstraintsSummary) -> Row | None:
    pinned = constraints.pinned
    if pinned is None:
        return None
    clauses = (f"{human_count(pinned.train)} rows in training", f"{human_count(pinned.val)} in validation")
    return Row("forced", clauses, "bold green" if pinned.satisfied else "bold red")


def _tolerance(constraints: ConstraintsSummary) -> Row | None:
    tolerance = constraints.tolerance
    if tolerance is None or not tolerance.was_found:
        return None
    how = "proven the smallest" if tolerance.proven_smallest else "the smallest found in time"
    return Row("tolerance", (human_number(tolerance.general), how))


def _missed_cell(cell: CellSummary) -> str:
    name = ", ".join(f"{printable(word)}={printable(str(value))}" for word, value in cell.cell.items())
    lower, upper = human_count(cell.lower), human_count(cell.upper)
    wanted = lower if lower == upper else f"{lower} to {upper}"
    where = "" if cell.part is None else f" in {printable(cell.part)}"
    found = f"{human_count(cell.actual)} of {human_count(cell.size)}"
    return f"{name or 'all rows'}{where}: {found}, wanted {wanted}"


def _certificate(report: Report) -> Row:
    certificate = report.certificate
    if report.graded is not None:
        return Row("certificate", ("none: a graded split is not locally optimal",), "")
    if certificate is None and report.target is not None and report.target.aim != "worst":
        return Row("certificate", ("none: only the hardest split is locally optimal",), "")
    if certificate is None:
        return Row("certificate", ("none asked for",), "")
    if certificate.backend == "cbc":
        how = f"by CBC ({human_count(certificate.n_lps)} LP{'' if certificate.n_lps == 1 else 's'})"
    else:
        how = f"by {certificate.backend}"
    return Row(
        "certificate",
        (
            f"{certificate.status} {how}",
            f"gap {human_number(certificate.gap, 2)}",
            "integral" if certificate.integral else "fractional",
        ),
        "bold green" if _is_proven(certificate) else "bold red",
    )


def _is_proven(certificate: Certificate) -> bool:
    return certificate.status == "optimal" and certificate.integral


def _kernel(report: Report) -> Row:
    clauses = [report.mmd.kernel]
    if report.mmd.gamma is not None:
        clauses.append(f"gamma {human_number(report.mmd.gamma)}")
    candidates = report.config.get("widths")
    if candidates:
        clauses.append(f"the most powerful of {len(candidates)} candidates")
    clauses.append(f"{report.mmd.geometry} geometry{_width(report.plan)}")
    if report.mmd.error:
        clauses.append(f"MMD² to {human_number(report.mmd.error, 1)}")
    return Row("kernel", tuple(clauses))


def _time(report: Report) -> Row:
    clauses = [human_seconds(report.timing.total)]
    if report.timing.peak_memory_bytes is not None:
        clauses.append(f"peak memory {human_bytes(report.timing.peak_memory_bytes)}")
    return Row("time", tuple(clauses))


def _fill(clauses: Iterable[str], width: int) -> list[str]:
    """Join clauses with commas into lines of at most `width`; only a longer clause breaks, between words."""
    lines: list[str] = []
    for clause in clauses:
        if lines and len(lines[-1]) + len(", ") + len(clause) + len(",") <= width:
            lines[-1] += f", {clause}"
            continue
        if lines:
            lines[-1] += ","
        lines += textwrap.wrap(clause, width - 1, break_long_words=False, break_on_hyphens=False) or [""]
    return lines


def show(console: Console, *parts: tuple[str, str]) -> None:
    """Print one line of (words, style) pairs; without the styles where the console is no colour terminal."""
    from rich.text import Text  # here, because rich takes longer to import than all of --help

    plain = console.no_color or not console.is_terminal
    text = Text.assemble(*((words, "" if plain else style) for words, style in parts))
    console.print(text, soft_wrap=True, highlight=False)
