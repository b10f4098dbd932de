"""Train/validation splits that are as different as the constraints allow.

The public names load what they need when they are first used, so that importing the package costs nothing.

A split of rows in memory, and its report:

>>> from sklearn.datasets import load_wine
>>> from clustersplit_cli import cluster_split
>>> X, y = load_wine(return_X_y=True)
>>> split = cluster_split(X, y, h=0.2, standardize="zscore")
>>> split
Split(142 train, 36 val, MMD 0.3832)

A search for the model that does best on validation rows unlike those it was trained on:

>>> from sklearn.model_selection import GridSearchCV
>>> from sklearn.tree import DecisionTreeClassifier
>>> from clustersplit_cli import ClusterShuffleSplit
>>> cv = ClusterShuffleSplit(h=0.2, standardize="zscore")
>>> search = GridSearchCV(DecisionTreeClassifier(random_state=0), {"max_depth": [1, 3, 5]}, cv=cv)
>>> search.fit(X, y).best_params_
{'max_depth': 3}
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clustersplit_cli.api import Partition, Split, cluster_folds, cluster_parts, cluster_split, mmd
    from clustersplit_cli.errors import ClusterSplitError, ClusterSplitWarning
    from clustersplit_cli.splitters import ClusterKFold, ClusterShuffleSplit

__version__ = "0.1.0"
__all__ = [
    "ClusterKFold",
    "ClusterShuffleSplit",
    "ClusterSplitError",
    "ClusterSplitWarning",
    "Partition",
    "Split",
    "__version__",
    "cluster_folds",
    "cluster_parts",
    "cluster_split",
    "mmd",
]

_HOMES = {
    "ClusterKFold": "splitters",
    "ClusterShuffleSplit": "splitters",
    "ClusterSplitError": "errors",
    "ClusterSplitWarning": "errors",
    "Partition": "api",
    "Split": "api",
    "cluster_folds": "api",
    "cluster_parts": "api",
    "cluster_split": "api",
    "mmd": "api",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError(f"{name} needs scikit-learn: pip install scikit-learn") from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
