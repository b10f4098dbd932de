"""The words that options of Python functions take; a test holds them to the table of options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypedDict

Kernel: TypeAlias = Literal["rbf", "laplacian", "linear", "cosine", "polynomial", "tanimoto", "precomputed"]
FeatureKernel: TypeAlias = Literal["rbf", "laplacian", "linear", "cosine", "polynomial", "tanimoto"]
"""Kernels that compare rows of two samples, each with features of its own."""
Standardize: TypeAlias = Literal["none", "zscore", "l2"]
Rounding: TypeAlias = Literal["nearest", "balanced"]
Effort: TypeAlias = Literal["fast", "normal", "thorough"]
Solver: TypeAlias = Literal["auto", "cbc"]
Certify: TypeAlias = Literal["auto", "always", "never"]
Bound: TypeAlias = Literal["auto", "always", "tight", "never"]
Impute: TypeAlias = Literal["none", "median"]
Aim: TypeAlias = Literal["worst", "lookalike", "nearest", "shift", "severity"]
Estimator: TypeAlias = Literal["biased", "unbiased"]
GroupsAre: TypeAlias = Literal["groups", "domains"]
Tolerance: TypeAlias = float | str | Sequence[float | str] | None


class SplitKeywords(TypedDict, total=False):
    """The options of `cluster_split` that functions over it pass on."""

    h: float | str | None
    tolerance: Tolerance
    rounding: Rounding | None
    label_bins: int | Literal["auto"] | None
    force_train: Any
    force_val: Any
    severity: float | str | None
    at_mmd: float | str | None
    target: Any
    aim: Aim
    weights: bool
    kernel: Kernel
    gamma: float | str | None
    degree: int | None
    standardize: Standardize
    nystrom: int | str
    restarts: int
    effort: Effort
    max_iter: int
    random_state: Any
    solver: Solver
    certify: Certify
    bound: Bound
    memory: int | str | None
    threads: int | None
    n_jobs: int | None
    columns: str | Sequence[str] | None
    transformer: Any
    drop_invalid: bool
    impute: Impute
    distances: bool
    verbose: int
