"""What is behind the command and the public package `clustersplit`, which is what Python code imports.

The public names load what they need when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

__version__ = "0.1.0"
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

_HOMES = {
    "ClusterKFold": "splitters",
    "ClusterLadderSplit": "splitters",
    "ClusterShuffleSplit": "splitters",
    "ClusterSplitError": "errors",
    "ClusterSplitWarning": "errors",
    "Partition": "api",
    "Split": "api",
    "cluster_folds": "api",
    "cluster_ladder": "api",
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
