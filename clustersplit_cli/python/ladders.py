"""Splits at several severities, from ordinary random ones to the hardest found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np

from clustersplit_cli.errors import UsageError
from clustersplit_cli.python.arguments import in_python_words, prepared, warn_of
from clustersplit_cli.python.results import Split
from clustersplit_cli.python.splits import cluster_split

PLACING = ("severity", "at_mmd", "aim", "weights")
"""Options of `cluster_split` that say what one split is to be."""


@dataclass(frozen=True)
class Rung:
    """A graded split of a ladder: its level, its repeat and the split."""

    level: float
    repeat: int
    split: Split


def cluster_ladder(
    X: Any,
    y: Any = None,
    domains: Any = None,
    *,
    levels: Sequence[float] | str = (0, 0.25, 0.5, 0.75, 1),
    repeats: int = 3,
    random_state: Any = 0,
    **options: Any,
) -> list[Rung]:
    """Split rows at several severities, from ordinary random splits to the hardest found.

    Equal to `clustersplit ladder`, and split by split to `cluster_split` with `severity` and a `random_state`
    that counts up with the repeat; but every repeat searches once for all levels.

    Parameters
    ----------
    X : array, data frame, table, tensor or sparse matrix of shape (n, d)
        The features, as for `cluster_split`.
    y : array of shape (n,) or (n, m), or str, optional
        One label per row, or the name of a column of X.
    domains : array of shape (n,) or str, optional
        One domain per row, or the name of a column of X.
    levels : list of float or str, default (0, 0.25, 0.5, 0.75, 1)
        Severities, from 0 to 1.
    repeats : int, default 3
        Splits per level.
    random_state : int, NumPy generator or None, default 0
        The seed of the first repeat.
    **options : Any
        Those of `cluster_split`, without `severity`, `at_mmd`, `aim` and `weights`. With `target`, the report
        of every split says which severity it corresponds to.

    Returns
    -------
    list of Rung
        Level by level, and in each of them repeat by repeat.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(80, 2))
    >>> rungs = cluster_ladder(X, levels=(0, 0.5, 1), repeats=1)
    >>> mmds = [rung.split.report.mmd.value for rung in rungs]
    >>> mmds == sorted(mmds)
    True
    """
    from clustersplit_cli.pipeline.ladder import climb, parse_levels
    from clustersplit_cli.pipeline.local.engine import opened_local

    taken = {name: given.default for name, given in signature(cluster_split).parameters.items()}
    with in_python_words():
        unknown = [name for name in options if name not in taken or name in PLACING]
        if unknown:
            raise UsageError(f"{', '.join(unknown)} is no option of a ladder", hint="see cluster_split")
        if isinstance(repeats, bool) or not isinstance(repeats, (int, np.integer)) or repeats < 1:
            raise UsageError(f"repeats must be an integer of at least 1, got {repeats!r}", hint="try 3")
        text = levels if isinstance(levels, str) else ",".join(map(str, levels))
        asked = parse_levels(text)
        given = {**taken, **options, "X": X, "y": y, "domains": domains, "random_state": random_state}
        source = prepared(given)
        rungs = []
        with opened_local(source.dataset, source.options) as engine:
            for repeat in range(int(repeats)):
                seed = source.options.seed + repeat
                again = replace(source, options=replace(source.options, seed=seed))
                for level, made in climb(engine.seeded(seed), asked, source.config):
                    rows = {"train": made.parts.train, "val": made.parts.val}
                    rungs.append(Rung(level, repeat, Split(made.report, _source=again, **rows)))
    notices = dict.fromkeys(notice for rung in rungs for notice in rung.split.report.warnings)
    warn_of(list(notices), stacklevel=2)
    return sorted(rungs, key=lambda rung: (rung.level, rung.repeat))
