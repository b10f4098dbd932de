"""From folds or named parts to the portrait that the HTML report draws."""

from __future__ import annotations

from itertools import chain

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.mmd.witness import column_shifts
from clustersplit_cli.core.search.partition import Labels, measure
from clustersplit_cli.pipeline.parted import PartedSetting
from clustersplit_cli.pipeline.portrait import FEATURES_SHOWN, row_map, rows_with_witness
from clustersplit_cli.reports.portrait import PartShifts, PartsPortrait

ROWS_PER_PART = 3


def portray_parts(setting: PartedSetting, labels: Labels, random_rest: NDArray[np.float64]) -> PartsPortrait:
    """Draw the rows on a map and find what tells the parts apart.

    Parameters
    ----------
    labels : (n,)
    random_rest : (random partitions, k), the MMD of each part with all other rows.
    """
    dataset, k = setting.dataset, setting.quotas.k
    witness = own_witness(setting, labels)
    shifts = np.stack(
        [
            column_shifts(
                Features(dataset.features),
                [(np.flatnonzero(labels != part), np.flatnonzero(labels == part))],
                [1.0],
                setting.workers,
            )
            for part in range(k)
        ]
    )
    order = np.argsort(-np.abs(shifts).max(axis=0), kind="stable")[:FEATURES_SHOWN]
    members = [np.flatnonzero(labels == part) for part in range(k)]
    typical = [rows[np.argsort(-witness[rows], kind="stable")[:ROWS_PER_PART]] for rows in members]
    return PartsPortrait(
        map=row_map(
            dataset,
            setting.image.factors(np.arange(len(labels))),
            labels,
            witness,
            setting.workers,
            np.random.default_rng(setting.options.seed),
            towards=labels == 0,
        ),
        names=setting.quotas.names,
        random_rest=tuple(map(tuple, random_rest.tolist())),
        features=tuple(
            PartShifts(dataset.feature_names[column], tuple(shifts[:, column].tolist())) for column in order
        ),
        n_features=shifts.shape[1],
        typical=tuple(
            chain.from_iterable(rows_with_witness(dataset, labels, witness, rows) for rows in typical)
        ),
    )


def own_witness(setting: PartedSetting, labels: Labels) -> NDArray[np.float64]:
    """Mean kernel value of every row with its own part minus that with all others; shape (n,)."""
    state = measure(setting.held.geometry, labels[:, None], setting.quotas.k, np.float64)
    sums = state.sums[:, 0]
    own = np.take_along_axis(sums, labels[:, None], axis=1)[:, 0]
    size = state.sizes[0][labels]
    return np.asarray(own / size - (sums.sum(axis=1) - own) / (len(labels) - size))
