"""What is behind the command and the public package `clustersplit`, which is what Python code imports.

The public names load what they need when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

__version__ = "0.1.0"
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

_HOMES = {
    "ClusterKFold": "python.splitters",
    "ClusterLadderSplit": "python.splitters",
    "ClusterShuffleSplit": "python.splitters",
    "ClusterSplitError": "errors",
    "ClusterSplitWarning": "errors",
    "Partition": "python.results",
    "PermutationTest": "python.samples",
    "Split": "python.results",
    "cluster_folds": "python.partitions",
    "cluster_ladder": "python.ladders",
    "cluster_parts": "python.partitions",
    "cluster_split": "python.splits",
    "cluster_train_val_split": "python.splits",
    "compare": "python.studies",
    "evaluate": "python.studies",
    "inspect": "python.studies",
    "mmd": "python.samples",
    "permutation_test": "python.samples",
    "verify": "python.checks",
    "witness": "python.samples",
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
