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
    from clustersplit_cli.errors import ClusterSplitError, ClusterSplitWarning
    from clustersplit_cli.python.checks import verify
    from clustersplit_cli.python.ladders import cluster_ladder
    from clustersplit_cli.python.partitions import cluster_folds, cluster_parts
    from clustersplit_cli.python.results import Partition, Split
    from clustersplit_cli.python.samples import PermutationTest, mmd, permutation_test, witness
    from clustersplit_cli.python.splits import cluster_split, cluster_train_val_split
    from clustersplit_cli.python.splitters import ClusterKFold, ClusterLadderSplit, ClusterShuffleSplit
    from clustersplit_cli.python.studies import compare, evaluate, inspect

__version__ = _command.__version__
__all__ = [
    "ClusterKFold",
    "ClusterLadderSplit",
    "ClusterShuffleSplit",
    "ClusterSplitError",
    "ClusterSplitWarning",
    "Partition",
    "PermutationTest",
    "Split",
    "__version__",
    "cluster_folds",
    "cluster_ladder",
    "cluster_parts",
    "cluster_split",
    "cluster_train_val_split",
    "compare",
    "evaluate",
    "inspect",
    "mmd",
    "permutation_test",
    "verify",
    "witness",
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
