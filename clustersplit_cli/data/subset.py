"""Some of a dataset's rows as a dataset of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.data.readers.categories import restrict


def keep_rows(dataset: Dataset, kept: NDArray[np.bool_]) -> Dataset:
    """Leave out rows as if they had been excluded while reading.

    Parameters
    ----------
    kept : (n,), which of the dataset's rows stay.
    """
    return replace(
        dataset,
        features=np.ascontiguousarray(dataset.features[kept]),
        categories={word: restrict(column, kept) for word, column in dataset.categories.items()},
        rows=dataset.rows[kept],
        n_excluded=dataset.n_excluded + int((~kept).sum()),
    )
