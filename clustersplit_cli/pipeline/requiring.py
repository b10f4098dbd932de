"""From a dataset and options to what a split must meet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, joint_cells
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.duplicates import row_identities
from clustersplit_cli.core.parallel import Workers
from clustersplit_cli.data.dataset import EXACT_DUPLICATES, Dataset
from clustersplit_cli.options import CheckedOptions


def requirements_of(dataset: Dataset, options: CheckedOptions, workers: Workers) -> Requirements:
    """Put families, quotas, tolerances, forced rows and units together.

    Raises
    ------
    InfeasibleError
        If they cannot be met at once.
    """
    return make_requirements(
        families_of(dataset),
        options.holdout,
        options.tolerance,
        options.rounding,
        dataset.pinned,
        units_of(dataset, workers),
    )


def families_of(dataset: Dataset) -> list[Cells]:
    """The cells of every family."""
    families = dataset.families or (tuple(dataset.categories),)
    return [
        joint_cells(
            {word: (dataset.categories[word].codes, dataset.categories[word].values) for word in words},
            len(dataset.rows),
        )
        for words in families
    ]


def units_of(dataset: Dataset, workers: Workers) -> NDArray[np.int64] | None:
    """The unit of every row; None if rows are on their own."""
    if dataset.together == EXACT_DUPLICATES:
        identity = row_identities(dataset.features, workers)
        return np.unique(identity, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return dataset.units
