"""Do lists of row positions describe a partition of the input? Judged from the numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import SIDES, Quotas
from clustersplit_cli.core.near_duplicates import Crossing
from clustersplit_cli.pipeline.result import CountedParts
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check
from clustersplit_cli.similarity import NEAR_DUPLICATES, Nearness

Indices = NDArray[np.int64]
NEEDS_ROWS = "needs all rows in one place: use --engine local"
_NAMED = 5


def check_positions(parts: Mapping[str, Indices], n: int, *, must_be_sorted: bool = True) -> Iterator[Check]:
    """Check that positions are in range, sorted and distinct, and that no row is in two parts."""
    is_split = set(parts) == set(SIDES)
    outside = {name: rows[(rows < 0) | (rows >= n)] for name, rows in parts.items()}
    yield _judge("rows in range", outside, f"all within 0..{n - 1}", f"outside 0..{n - 1}")
    falls = {name: rows[1:][np.diff(rows) < 0] for name, rows in parts.items()}
    if must_be_sorted or not any(map(len, falls.values())):
        fine = "both sides ascend" if is_split else "all parts ascend"
        yield _judge("rows sorted", falls, fine, "lower than the row before")
    else:
        yield Check(
            "rows sorted", SKIPPED, "not ascending, which is required only of files from clustersplit"
        )
    yield _judge("rows distinct", {name: _repeated(rows) for name, rows in parts.items()}, "no row twice")
    where = "on both sides" if is_split else "in two parts"
    name, what = ("sides disjoint", "both") if is_split else ("parts disjoint", "all")
    yield _judge(name, {what: _shared(parts, n)}, f"no row {where}", where)


def check_complete(counted: CountedParts, n: int) -> Check:
    """Judge whether all rows that take part, and no others, are in a part."""
    is_split = counted.families[0].names == SIDES
    nowhere, somewhere = ("neither side", "a side") if is_split else ("no part", "a part")
    found = [
        f"{where}: {'row' if count == 1 else 'rows'} {named_rows(rows, count)}"
        for where, (count, rows) in {
            nowhere: counted.missing,
            f"{somewhere} though excluded or dropped": counted.extra,
        }.items()
        if count
    ]
    if found:
        return Check("rows complete", FAILED, "; ".join(found))
    where = "on a side" if is_split else "in a part"
    return Check("rows complete", OK, f"{counted.n_kept} of {n} rows take part, each is {where}")


def check_requirements(counted: CountedParts, *, freed_by: str | None = None) -> Iterator[Check]:
    """Check every family's counts, that units are whole, and that forced rows are where they must be."""
    for quotas, counts in zip(counted.families, counted.counts, strict=True):
        found = check_cells(quotas, counts, freed_by=freed_by)
        words = ",".join(quotas.cells.names[0]) or "all rows"
        yield found if len(counted.families) == 1 else replace(found, name=f"{found.name} of {words}")
    if counted.units is not None:
        column, n_units, (divided, rows) = counted.units
        whole = f"{n_units} units of {column}, none divided"
        yield _judge("units whole", {f"{divided} units divided": rows}, whole, "")
    if counted.forced is not None:
        astray = counted.forced.astray
        yield _judge("forced rows", astray, f"all {counted.forced.count} in place", "missing")
    if counted.drawn is not None:
        drawn = counted.drawn
        names = ", ".join(counted.families[0].names[part] for part in counted.families[0].drawn)
        if n_astray := sum(map(len, drawn.astray.values())):
            told = f"{n_astray} rows that the seed draws for {names} are elsewhere"
            yield Check("random parts", FAILED, told)
        else:
            yield Check("random parts", OK, f"{names}: {drawn.count} rows, those that the seed draws")


def check_crossing(found: Crossing | None, near: Nearness, names: tuple[str, ...]) -> Check:
    """Judge whether no row is nearly the same as a row of another part."""
    name = NEAR_DUPLICATES.replace("-", " ")
    if found is None:
        return Check(name, SKIPPED, NEEDS_ROWS)
    least = f"{near.name} of {near.least:g} or more"
    where = "on the other side" if names == SIDES else "in another part"
    if found.closest is None:
        return Check(name, OK, f"no row has a row of {least} {where}")
    first, second, similarity = found.closest
    return Check(
        name,
        FAILED,
        f"{len(found.rows)} rows have a row of {least} {where}: "
        f"{named_rows(found.rows, len(found.rows))}; "
        f"the most similar are rows {first} and {second} ({similarity:.4g})",
    )


def check_cells(quotas: Quotas, counts: Indices, *, freed_by: str | None = None) -> Check:
    """Compare the rows of every cell in every part, (cells, parts), with their bounds.

    Parameters
    ----------
    freed_by : the strategy that promises no counts; then they need only be whole.
    """
    sizes = quotas.cells.sizes
    out = (counts < quotas.lower) | (counts > quotas.upper)
    uncovered = counts.sum(axis=1) != sizes
    wrong = np.flatnonzero(out.any(axis=1) | uncovered).tolist()
    if freed_by is not None and not uncovered.any():
        return Check(
            "cell counts", SKIPPED, f"{len(wrong)} of {len(sizes)} cells out of bounds; {freed_by} sets none"
        )
    if not wrong:
        of_parts = "" if quotas.names == SIDES else f" in {quotas.k} parts"
        return Check("cell counts", OK, f"{len(sizes)} cells{of_parts}, all within their bounds")
    named = [f"{quotas.cells.describe(cell)}: {_counts_of(quotas, counts, cell)}" for cell in wrong[:_NAMED]]
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return Check("cell counts", FAILED, f"{len(wrong)} of {len(sizes)} cells: {'; '.join(named)}{more}")


def _counts_of(quotas: Quotas, counts: Indices, cell: int) -> str:
    """The counts of a cell that are out of bounds, and what they should be."""
    size = quotas.cells.sizes[cell]
    parts = [
        f"{counts[cell, part]} of {size} in {quotas.names[part]}, wanted {_bounds(quotas, cell, part)}"
        for part in range(quotas.k)
        if not quotas.lower[cell, part] <= counts[cell, part] <= quotas.upper[cell, part]
    ]
    return ", ".join(parts) or f"{counts[cell].sum()} of {size} in any part"


def is_partition(checks: list[Check]) -> bool:
    """Whether nothing but the order of the rows was found wrong."""
    return all(check.status != FAILED or check.name == "rows sorted" for check in checks)


def named_rows(rows: Indices, count: int | None = None) -> str:
    """Name the first few rows, of as many as are there or as `count` says."""
    text, total = ", ".join(map(str, rows[:_NAMED].tolist())), len(rows) if count is None else count
    return f"{text} and {total - _NAMED} more" if total > _NAMED else text


def _judge(name: str, wrong: Mapping[str, Indices], fine: str, what: str = "repeated") -> Check:
    found = [
        f"{side}: {'row' if len(rows) == 1 else 'rows'} {named_rows(rows)}{f' {what}' if what else ''}"
        for side, rows in wrong.items()
        if len(rows)
    ]
    return Check(name, FAILED, "; ".join(found)) if found else Check(name, OK, fine)


def _shared(parts: Mapping[str, Indices], n: int) -> Indices:
    """The rows in two parts, by a mark per row: copies of long lists would take much more memory."""
    marked, shared = np.zeros(n, dtype=bool), [np.empty(0, np.int64)]
    for rows in parts.values():
        inside = rows[(rows >= 0) & (rows < n)]
        shared.append(inside[marked[inside]])
        marked[inside] = True
    return np.unique(np.concatenate(shared))


def _repeated(rows: Indices) -> Indices:
    if (rows[1:] > rows[:-1]).all():
        return rows[:0]
    values, counts = np.unique(rows, return_counts=True)
    return values[counts > 1]


def _bounds(quotas: Quotas, cell: int, part: int) -> str:
    lower, upper = int(quotas.lower[cell, part]), int(quotas.upper[cell, part])
    return str(lower) if lower == upper else f"{lower} to {upper}"
