"""Do two lists of row positions describe a split of the input? Judged from the numbers alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.quotas import FREE, TRAIN, VAL, Quotas
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.reports.verification import FAILED, OK, SKIPPED, Check

Indices = NDArray[np.int64]
_NAMED = 5


def check_partition(
    train: Indices, val: Indices, dataset: Dataset, *, must_be_sorted: bool = True
) -> Iterator[Check]:
    """Check that the positions are in range, sorted, distinct, and cover every row that takes part once."""
    n = dataset.n_rows
    yield from check_positions({"train": train, "val": val}, n, must_be_sorted=must_be_sorted)
    both = np.union1d(train, val)
    missing = np.setdiff1d(dataset.rows, both)
    left_out = np.setdiff1d(both[(both >= 0) & (both < n)], dataset.rows)
    yield check_complete((len(missing), missing), (len(left_out), left_out), len(dataset.rows), n)


def check_positions(sides: Mapping[str, Indices], n: int, *, must_be_sorted: bool = True) -> Iterator[Check]:
    """Check that positions are in range, sorted and distinct, and that no row is on both sides."""
    outside = {side: rows[(rows < 0) | (rows >= n)] for side, rows in sides.items()}
    yield _judge("rows in range", outside, f"all within 0..{n - 1}", f"outside 0..{n - 1}")
    falls = {side: rows[1:][np.diff(rows) < 0] for side, rows in sides.items()}
    if must_be_sorted or not any(map(len, falls.values())):
        yield _judge("rows sorted", falls, "both sides ascend", "lower than the row before")
    else:
        yield Check("rows sorted", SKIPPED, "not ascending, which only our own files must be")
    yield _judge("rows distinct", {side: _repeated(rows) for side, rows in sides.items()}, "no row twice")
    yield _judge("sides disjoint", {"both": _shared(sides, n)}, "no row on both sides", "on both sides")


def check_complete(missing: tuple[int, Indices], left_out: tuple[int, Indices], n_kept: int, n: int) -> Check:
    """Judge whether all rows that take part, and no others, are on a side.

    Parameters
    ----------
    missing, left_out : how many rows are on neither side, or on one though they take no part; the first few.
    """
    told = {"neither side": missing, "a side though excluded or dropped": left_out}
    found = [
        f"{where}: {'row' if count == 1 else 'rows'} {named_rows(rows, count)}"
        for where, (count, rows) in told.items()
        if count
    ]
    if found:
        return Check("rows complete", FAILED, "; ".join(found))
    return Check("rows complete", OK, f"{n_kept} of {n} rows take part, each is on a side")


def check_requirements(
    train: Indices, val: Indices, dataset: Dataset, asked: Requirements, *, freed_by: str | None = None
) -> Iterator[Check]:
    """Check every family's counts, that units are whole, and that forced rows are where they must be."""
    for family in asked.families:
        found = check_cells(train, val, dataset, family, freed_by=freed_by)
        words = ",".join(family.cells.names[0]) or "all rows"
        yield found if len(asked.families) == 1 else replace(found, name=f"{found.name} of {words}")
    in_val, in_train = np.isin(dataset.rows, val), np.isin(dataset.rows, train)
    if asked.units is not None:
        kept = np.bincount(asked.units[in_val], minlength=asked.n_atoms) > 0
        torn = kept & (np.bincount(asked.units[in_train], minlength=asked.n_atoms) > 0)
        rows = dataset.rows[torn[asked.units]]
        whole = f"{asked.n_atoms} units of {dataset.together}, none divided"
        yield _judge("units whole", {f"{int(torn.sum())} units divided": rows}, whole, "")
    forced = {"train": (asked.pinned == TRAIN) & ~in_train, "val": (asked.pinned == VAL) & ~in_val}
    if (asked.pinned != FREE).any():
        astray = {side: dataset.rows[rows] for side, rows in forced.items()}
        yield _judge("forced rows", astray, f"all {int((asked.pinned != FREE).sum())} in place", "missing")


def check_cells(
    train: Indices,
    val: Indices,
    dataset: Dataset,
    quotas: Quotas,
    *,
    freed_by: str | None = None,
) -> Check:
    """Count each cell's rows on either side and compare with its bounds.

    Parameters
    ----------
    freed_by : the strategy that promises no counts; then they need only be whole.
    """
    codes, sizes = quotas.cells.codes, quotas.cells.sizes
    in_val, in_train = (
        np.bincount(codes[np.isin(dataset.rows, rows)], minlength=len(sizes)) for rows in (val, train)
    )
    short = in_val < quotas.validation.lower
    over = in_val > quotas.validation.upper
    uncovered = in_train + in_val != sizes
    wrong = np.flatnonzero(short | over | uncovered).tolist()
    if freed_by is not None and not uncovered.any():
        return Check(
            "cell counts", SKIPPED, f"{len(wrong)} of {len(sizes)} cells out of bounds; {freed_by} sets none"
        )
    if not wrong:
        return Check("cell counts", OK, f"{len(sizes)} cells, all within their bounds")
    named = [
        f"{quotas.cells.describe(cell)}: {in_val[cell]} of {sizes[cell]} in validation"
        f", wanted {_bounds(quotas, cell)}" + (f", {in_train[cell]} in training" if uncovered[cell] else "")
        for cell in wrong[:_NAMED]
    ]
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return Check("cell counts", FAILED, f"{len(wrong)} of {len(sizes)} cells: {'; '.join(named)}{more}")


def is_partition(checks: list[Check]) -> bool:
    """Whether nothing but the order of the rows was found wrong."""
    return all(check.status != FAILED or check.name == "rows sorted" for check in checks)


def named_rows(rows: Indices, count: int | None = None) -> str:
    """Name the first few rows, of as many as are there or as `count` says."""
    text, total = ", ".join(map(str, rows[:_NAMED].tolist())), len(rows) if count is None else count
    return f"{text} and {total - _NAMED} more" if total > _NAMED else text


def _judge(name: str, wrong: dict[str, Indices], fine: str, what: str = "repeated") -> Check:
    found = [
        f"{side}: {'row' if len(rows) == 1 else 'rows'} {named_rows(rows)}{f' {what}' if what else ''}"
        for side, rows in wrong.items()
        if len(rows)
    ]
    return Check(name, FAILED, "; ".join(found)) if found else Check(name, OK, fine)


def _shared(sides: Mapping[str, Indices], n: int) -> Indices:
    """The rows on both sides, by a mark per row: copies of long lists would take much more memory."""
    train, val = (rows[(rows >= 0) & (rows < n)] for rows in sides.values())
    marked = np.zeros(n, dtype=bool)
    marked[train] = True
    return np.unique(val[marked[val]])


def _repeated(rows: Indices) -> Indices:
    if (rows[1:] > rows[:-1]).all():
        return rows[:0]
    values, counts = np.unique(rows, return_counts=True)
    return values[counts > 1]


def _bounds(quotas: Quotas, cell: int) -> str:
    lower, upper = int(quotas.validation.lower[cell]), int(quotas.validation.upper[cell])
    return str(lower) if lower == upper else f"{lower} to {upper}"
