"""Train/validation splits that are as different as the constraints allow.

A split of rows in memory, and its report:

>>> from sklearn.datasets import load_wine
>>> from clustersplit import cluster_split
>>> X, y = load_wine(return_X_y=True)
>>> split = cluster_split(X, y, h=0.2, standardize="zscore")
>>> split
Split(142 train, 36 val, MMD 0.3832)

A search for the model that does best on validation rows unlike those it was trained on:

>>> from sklearn.model_selection import GridSearchCV
>>> from sklearn.tree import DecisionTreeClassifier
>>> from clustersplit import ClusterShuffleSplit
>>> cv = ClusterShuffleSplit(h=0.2, standardize="zscore")
>>> search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3, 5]}, cv=cv)
>>> search.fit(X, y).best_params_
{'max_depth': 3}

What `__all__` names is public; all else may change in any release. Names are loaded when they are first
used, so that importing the package costs little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import clustersplit_cli as _command

if TYPE_CHECKING:
    from clustersplit_cli.api import (
        Partition,
        Split,
        cluster_folds,
        cluster_ladder,
        cluster_parts,
        cluster_split,
        mmd,
    )
    from clustersplit_cli.errors import ClusterSplitError, ClusterSplitWarning
    from clustersplit_cli.splitters import ClusterKFold, ClusterLadderSplit, ClusterShuffleSplit

__version__ = _command.__version__
__all__ = [
    "ClusterKFold",
    "ClusterLadderSplit",
    "ClusterShuffleSplit",
    "ClusterSplitError",
    "ClusterSplitWarning",
    "Partition",
    "Split",
    "__version__",
    "cluster_folds",
    "cluster_ladder",
    "cluster_parts",
    "cluster_split",
    "mmd",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(_command, name)
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
