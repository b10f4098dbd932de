"""The sizes of folds before any are made: from cells alone, without a kernel."""

from __future__ import annotations

from clustersplit_cli.core.constraints.groups import GroupParts
from clustersplit_cli.core.constraints.quotas import PartQuotas
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.engines.options import LOCAL
from clustersplit_cli.engines.tasks import Survey
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.notices import about_parts
from clustersplit_cli.pipeline.sharded import ShardedEngine
from clustersplit_cli.pipeline.sharded_prepare import count_cells
from clustersplit_cli.reports.fold_sizes import FoldCell, FoldSizes, FoldTotal
from clustersplit_cli.reports.summary import Notice


def sizes_in_memory(dataset: Dataset, options: CheckedOptions, folds: int, path: str) -> FoldSizes:
    """Size the folds of a dataset as `kfold` would.

    Raises
    ------
    InfeasibleError, UsageError
        As `kfold` does.
    """
    quotas, units = PartitionOptions(folds=folds).arranged(dataset, options)
    left_out = (dataset.n_rows, dataset.n_excluded, dataset.n_dropped)
    return _summary(quotas, units, path, LOCAL, left_out, dataset.notes)


def sizes_in_pieces(engine: ShardedEngine, folds: int, path: str) -> FoldSizes:
    """Do the same in one pass over rows that are read in pieces."""
    counted = count_cells(engine.layout, engine.executor, Survey(), engine.watch)
    quotas = PartitionOptions(folds=folds).of_cells(counted.cells, engine.options)
    left_out = (engine.layout.n_rows, counted.found.n_excluded, counted.found.n_invalid)
    return _summary(
        quotas, None, path, engine.executor.name, left_out, (*engine.layout.notes, *engine.executor.notes)
    )


def _summary(
    quotas: PartQuotas,
    units: GroupParts | None,
    path: str,
    engine: str,
    left_out: tuple[int, int, int],
    notes: tuple[tuple[str, str], ...],
) -> FoldSizes:
    cells = tuple(
        FoldCell(dict(name), int(size), int(lower.min()), int(upper.max()), bool((upper == 0).any()))
        for name, size, lower, upper in zip(
            quotas.cells.names, quotas.cells.sizes, quotas.lower, quotas.upper, strict=True
        )
    )
    totals = zip(quotas.names, quotas.lower.sum(axis=0), quotas.upper.sum(axis=0), strict=True)
    return FoldSizes(
        path,
        engine,
        quotas.k,
        *left_out,
        folds=tuple(FoldTotal(name, int(fewest), int(most)) for name, fewest, most in totals),
        cells=cells,
        too_small=sum(cell.too_small for cell in cells),
        units=None if units is None else len(units.table),
        tolerance=0.0 if units is None else float(units.tolerance),
        warnings=tuple(Notice(*note) for note in (*notes, *about_parts(quotas))),
    )
