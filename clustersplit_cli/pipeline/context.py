"""What is known before parts are chosen: seeds, the memory plan, the kernel, and the requirements."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import dataclass, replace
from fractions import Fraction
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, joint_cells, sample_rows
from clustersplit_cli.core.constraints.groups import GroupParts, form_parts
from clustersplit_cli.core.constraints.quotas import (
    Quotas,
    fold_quotas,
    parse_parts,
    part_quotas,
    random_parts,
)
from clustersplit_cli.core.constraints.requirements import Requirements, make_requirements
from clustersplit_cli.core.duplicates import row_identities
from clustersplit_cli.core.geometry.cholesky import (
    BLOCK,
    PivotedCholesky,
    leading_discrepancy,
    pivoted_cholesky,
    squared_length,
)
from clustersplit_cli.core.geometry.dense import dense_geometry
from clustersplit_cli.core.geometry.features import Features, Floats
from clustersplit_cli.core.geometry.kernels import (
    POWER,
    KernelSpread,
    Prepared,
    off_diagonal_spread,
    prepare,
    standardize,
)
from clustersplit_cli.core.geometry.nystrom import linear_geometry, low_rank_geometry, nystrom_geometry
from clustersplit_cli.core.geometry.protocol import Geometry, choose_landmarks
from clustersplit_cli.core.geometry.sparse import SparseFeatures, prepare_sparse, sparse_geometry
from clustersplit_cli.core.mmd.power import WidthPower, most_powerful, sampled_rows, width_powers
from clustersplit_cli.core.near_duplicates import Similarities, near_units
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.core.severity import DRAWS
from clustersplit_cli.data.dataset import Dataset, Extent
from clustersplit_cli.engines.plan import (
    MemoryPlan,
    Workload,
    check_coordinates,
    most_factors,
    plan_low_rank,
    plan_memory,
)
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.similarity import EXACT_DUPLICATES, Nearness

RANDOM_SPLITS = 20
_POWER_KEY = 0x706F776572
TRIED_ROWS = 4096
"""Rows that tell how many factors a kernel takes."""
NEGLIGIBLE = 1e-6
"""Share of MMD² that a kernel of low rank may lack."""
EASE = 2.0
"""How much smaller than a simple split of a sample the MMD² that is found may be."""
MORE_FACTORS = 1.5
"""Factors that all rows may take, to those that a sample of them takes."""
Value = TypeVar("Value")


class Once(Generic[Value]):
    """A value that is made when it is first asked for, whichever thread asks."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make, self._lock = make, Lock()
        self._made: Future[Value] = Future()

    def __call__(self) -> Value:
        """Return the value."""
        with self._lock:
            if not self._made.done():
                self._made.set_result(self._make())
        return self._made.result()


@dataclass(frozen=True)
class Streams:
    """Independent random streams, one per purpose, so that a change in one never shifts another."""

    landmarks: np.random.Generator
    samples: np.random.Generator
    baseline: tuple[np.random.Generator, ...]
    low_rank: np.random.Generator
    search: np.random.Generator
    grades: np.random.Generator
    parts: np.random.Generator

    @classmethod
    def from_seed(cls, seed: int) -> Streams:
        """Spawn all streams from one seed."""
        landmarks, samples, baseline, low_rank, search, grades, parts = np.random.default_rng(seed).spawn(7)
        return cls(
            landmarks,
            samples,
            tuple(baseline.spawn(RANDOM_SPLITS)),
            low_rank,
            search,
            grades,
            parts,
        )

    def noise(self, draw: int) -> list[np.random.Generator]:
        """Streams of noise for graded partitions, others for every draw; asked again, the same ones."""
        return deepcopy(self.grades).spawn(draw + 1)[draw].spawn(DRAWS)


def plan(extent: Extent, options: CheckedOptions) -> MemoryPlan | None:
    """Decide how to hold the kernel before anything is read; None if only reading can tell the size."""
    if extent.n_rows is None or extent.n_features is None or extent.itemsize is None:
        return None
    if options.is_square:
        check_coordinates(extent.n_rows, options.budget)
    return plan_memory(
        workload(extent, options),
        is_linear=options.is_linear,
        nystrom=options.nystrom,
        budget=options.budget,
    )


def workload(extent: Extent, options: CheckedOptions) -> Workload:
    """The sizes that memory and time depend on, where all of them are known."""
    n, d, itemsize = extent.n_rows, extent.n_features, extent.itemsize
    assert n is not None and d is not None and itemsize is not None
    return Workload(n, d, itemsize, options.restarts, options.threads, extent.stored)


def plan_local(
    dataset: Dataset,
    options: CheckedOptions,
    workers: Workers,
    into: PartitionOptions | None = None,
    *,
    memory: MemoryPlan | None = None,
) -> MemoryPlan:
    """Decide how to hold the kernel of rows that have been read: as factors, if few of them may do.

    Parameters
    ----------
    memory : the plan that the sizes alone gave, if it has been made.
    """
    into = into or PartitionOptions()
    memory, tried = memory or plan(dataset.extent, options), None
    assert memory is not None
    # Where there is a target, its rows are compared through the kernel itself.
    if options.nystrom == "auto" and not options.is_linear and dataset.target is None:
        tried = _try_factors(dataset, options, workers, into)
    return (tried or memory).of_parts(len(into.shares(options)))


def _try_factors(
    dataset: Dataset, options: CheckedOptions, workers: Workers, into: PartitionOptions
) -> MemoryPlan | None:
    """Factor the kernel between some rows, until what is left would not show in the MMD of all rows."""
    work, n = workload(dataset.extent, options), len(dataset.rows)
    most = most_factors(work, options.budget)
    cells = families_of(dataset)[0]
    if most == 0 or len(cells.sizes) > TRIED_ROWS:
        return None
    options, _ = with_width(dataset, options, workers)
    rows, streams = sample_rows(cells, min(n, TRIED_ROWS), np.random.default_rng(0)), Streams.from_seed(0)
    try:
        prepared = prepare_features(dataset.features[rows], options, workers, streams.samples)
    except InputError:  # where all rows are as bad, it is said of them
        return None
    shares = into.shares(options)
    what = (prepared.features, prepared.kernel, streams.landmarks, workers)
    easy = leading_discrepancy(
        pivoted_cholesky(*what, most=BLOCK).factors, cells.only(rows), float(min(shares))
    )
    # Times the squared length of the weights, what is left of the trace bounds what MMD² lacks.
    left = NEGLIGIBLE * easy / (EASE * squared_length(shares, n))
    tried = pivoted_cholesky(*what, most=most, enough=left * len(rows) / n)
    if not tried.is_enough:
        return None
    rank = min(most, int(MORE_FACTORS * tried.rank))
    return plan_low_rank(work, options.budget, rank, left)


@dataclass(frozen=True)
class LocalKernel:
    """A kernel, ready to be multiplied by, and how it came about.

    Attributes
    ----------
    spread : off-diagonal kernel values on a sample; None for kernels it says nothing about.
    widths : the candidates, where `--gamma power` chose among them.
    """

    memory: MemoryPlan
    prepared: Prepared
    spread: KernelSpread | None
    geometry: Geometry
    widths: tuple[WidthPower, ...] = ()


def prepare_local_kernel(
    dataset: Dataset,
    options: CheckedOptions,
    memory: MemoryPlan,
    streams: Streams,
    workers: Workers,
    watch: Stopwatch,
    progress: Progress = silent,
) -> LocalKernel:
    """Prepare the features, and hold the kernel the way the plan says."""
    with watch.step("prepare"):
        prepared = prepare_features(dataset.features, options, workers, streams.samples)
    with watch.step("kernel"):
        spread = off_diagonal_spread(prepared, streams.samples) if options.is_stationary else None
        prepared = prepared.resolving(spread)
        factors = None
        if memory.rank is not None:
            factors = pivoted_cholesky(
                prepared.features,
                prepared.kernel,
                streams.landmarks,
                workers,
                most=memory.rank,
                enough=memory.residual,
                progress=progress,
            )
            memory = _proven(memory, factors) or _without_factors(dataset, options)
        if factors is not None and memory.rank is not None:
            geometry: Geometry = low_rank_geometry(factors.factors, workers, factors.residual)
        else:
            geometry = build_geometry(prepared, memory, streams.landmarks, workers, progress)
        n = geometry.n
        prepared.require_digits(geometry.trace - geometry.grand_total / n, geometry.trace, n)
    return LocalKernel(memory, prepared, spread, geometry)


def _proven(memory: MemoryPlan, factors: PivotedCholesky) -> MemoryPlan | None:
    """The plan with what came of it; None where the factors leave too much of the kernel."""
    if not factors.is_enough:
        return None
    return replace(memory, rank=factors.rank, residual=factors.residual)


def _without_factors(dataset: Dataset, options: CheckedOptions) -> MemoryPlan:
    memory = plan(dataset.extent, options)
    assert memory is not None
    return replace(memory, reason=f"{memory.reason}, and few factors do not hold it")


def width_candidates(dataset: Dataset, options: CheckedOptions, workers: Workers) -> tuple[WidthPower, ...]:
    """What `--gamma power` chooses from.

    Raises
    ------
    UsageError
        If there are no domains among the cells, or too few rows of them.
    """
    domain = dataset.categories.get("domain")
    if domain is None or hasattr(dataset.features, "indptr"):
        raise UsageError(
            "--gamma power tells domains apart, and there are none among the cells",
            hint="keep domain in --stratify, or use --gamma scale or median",
        )
    rows = sampled_rows(len(dataset.rows), np.random.default_rng([options.seed, _POWER_KEY]))
    features = standardize(Features(dataset.features), options.standardize, workers)
    return width_powers(features.take(rows, np.float64).astype(np.float64), domain.codes[rows])


def with_width(
    dataset: Dataset, options: CheckedOptions, workers: Workers
) -> tuple[CheckedOptions, tuple[WidthPower, ...]]:
    """Turn `--gamma power` into a kernel and a number; also return the candidates."""
    if options.gamma != POWER:
        return options, ()
    found = width_candidates(dataset, options, workers)
    best = most_powerful(found)
    return replace(options, kernel=best.kernel, gamma=best.gamma), found


def stated_widths(found: tuple[WidthPower, ...]) -> dict[str, Any]:
    """The candidates as reports have them, among the options."""
    return {"widths": [[each.kernel, each.gamma, each.power] for each in found]} if found else {}


def build_geometry(
    prepared: Prepared,
    memory: MemoryPlan,
    rng: np.random.Generator,
    workers: Workers,
    progress: Progress,
) -> Geometry:
    """Hold the kernel the way the plan says."""
    if isinstance(prepared.features, SparseFeatures):
        return sparse_geometry(prepared.features, workers)
    if memory.geometry == "linear":
        return linear_geometry(prepared.features, prepared.kernel, workers, prepared.moments)
    if memory.geometry == "dense":
        return dense_geometry(prepared.features, prepared.kernel, workers, progress)
    assert memory.landmarks is not None
    landmarks = choose_landmarks(prepared.features.shape[0], memory.landmarks, rng)
    return nystrom_geometry(prepared.features, prepared.kernel, landmarks, workers, progress)


def requirements_of(
    dataset: Dataset, options: CheckedOptions, workers: Workers, progress: Progress = silent
) -> Requirements:
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
        units_of(dataset, options, workers, progress),
    )


@dataclass(frozen=True)
class PartitionOptions:
    """What a partition is into: folds, or parts with names and shares, some of them drawn at random."""

    folds: int | None = None
    parts: tuple[tuple[str, Fraction], ...] = ()
    random: tuple[str, ...] = ()

    @classmethod
    def of_text(cls, text: str) -> PartitionOptions:
        """Read `--parts`."""
        return cls(parts=parse_parts(text), random=random_parts(text))

    def shares(self, options: CheckedOptions) -> list[Fraction]:
        """The share of every part; where there is none, of the two sides of a split."""
        if self.folds is not None:
            return [Fraction(1, self.folds)] * self.folds
        return [share for _, share in self.parts] or [1 - options.holdout, options.holdout]

    def quotas(self, dataset: Dataset, options: CheckedOptions) -> Quotas:
        """Give every part its share of every cell."""
        families = families_of(dataset)
        if len(families) > 1:
            raise UsageError(
                f"{len(families)} families of cells cannot be kept by {self.what}",
                hint="join their columns with commas in one --stratify",
            )
        if dataset.together is None:
            return self.of_cells(families[0], options, self._pins(dataset))
        if self.folds is not None:
            return fold_quotas(families[0], self.folds)
        return part_quotas(families[0], self.parts, [Fraction(0)] * len(families[0].sizes), pinned=None)

    def of_cells(
        self, cells: Cells, options: CheckedOptions, pins: NDArray[np.int64] | None = None
    ) -> Quotas:
        """The shares where rows are on their own; without pins, the sizes of the cells are enough."""
        if self.folds is not None:
            if options.tolerance.is_auto or options.tolerance.general:
                raise UsageError(
                    "--tolerance has no effect on folds of single rows, which always have equal shares",
                    hint="drop --tolerance",
                )
            return fold_quotas(cells, self.folds)
        if options.tolerance.is_auto:
            raise UsageError("--tolerance auto cannot be combined with --parts", hint="give a number")
        (each,) = options.tolerance.of_cells([cells])
        return part_quotas(cells, self.parts, [t or Fraction(0) for t in each], pins)

    def arranged(self, dataset: Dataset, options: CheckedOptions) -> tuple[Quotas, GroupParts | None]:
        """The same, and where rows stay together, units that meet them within a tolerance."""
        quotas, stream = self.quotas(dataset, options), Streams.from_seed(options.seed).parts
        drawn = [quotas.names.index(name) for name in self.random]
        if dataset.together is None:
            return quotas.drawing(drawn, stream) if drawn else quotas, None
        refused = {
            "--solver cbc": options.solver == "cbc",
            "--certify always": options.certify == "always",
            "--tolerance of single cells": bool(options.tolerance.exceptions),
        }
        if any(refused.values()):
            names = ", ".join(name for name, is_given in refused.items() if is_given)
            raise UsageError(
                f"{names} cannot be combined with --keep-together and {self.what}", hint="drop it"
            )
        with pool(options.threads) as workers:
            units = units_of(dataset, options, workers)
        assert units is not None
        pins = self._pins(dataset)
        if pins is not None:
            quotas = replace(quotas, pinned=pins)
        found = form_parts(quotas, units, options.tolerance.general)
        found = found.drawing(drawn, stream) if drawn else found
        return found.quotas, found

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parts."""
        if self.folds is not None:
            return tuple(f"fold_{fold}" for fold in range(self.folds))
        return tuple(name for name, _ in self.parts)

    @property
    def stems(self) -> tuple[str, ...]:
        """The paths of index files in a run directory, without suffixes: the rows of every part."""
        if self.folds is not None:
            return tuple(f"{name}/val" for name in self.names)
        return self.names

    @property
    def what(self) -> str:
        """Folds, or parts."""
        return "folds" if self.folds is not None else "--parts"

    def _pins(self, dataset: Dataset) -> NDArray[np.int64] | None:
        """Rows forced into the parts named train and val."""
        if dataset.pinned is None:
            return None
        names = [name for name, _ in self.parts]
        pins = np.full(len(dataset.rows), -1, dtype=np.int64)
        for side, name in enumerate(("train", "val")):
            forced = dataset.pinned == side
            if forced.any() and name not in names:
                raise UsageError(
                    f"--force-{name} has no effect, because no part is named {name}",
                    hint=f"name one of --parts {name}",
                )
            if forced.any() and name in self.random:
                raise UsageError(
                    f"--force-{name} cannot be combined with {name}:random in --parts",
                    hint="force rows into other parts, or do not draw this one",
                )
            if forced.any():
                pins[forced] = names.index(name)
        return pins


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


def units_of(
    dataset: Dataset, options: CheckedOptions, workers: Workers, progress: Progress = silent
) -> NDArray[np.int64] | None:
    """The unit of every row; None if rows are on their own."""
    near = Nearness.of_together(dataset.together)
    if near is not None:
        similar = similarities_of(dataset.features, options, near, workers)
        return near_units(similar, near.least, workers, progress)
    if dataset.together == EXACT_DUPLICATES:
        identity = row_identities(dataset.features, workers)
        return np.unique(identity, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return dataset.units


def similarities_of(raw: Floats, options: CheckedOptions, near: Nearness, workers: Workers) -> Similarities:
    """How similar rows are: by the cosines of standardized rows, or by the kernel."""
    if near.by_kernel and not options.is_linear:
        prepared = prepare_features(raw, options, workers, Streams.from_seed(options.seed).samples)
        return Similarities.of_kernel(prepared.features, prepared.kernel)
    if hasattr(raw, "indptr"):
        return Similarities.cosines(Features(raw), workers)
    return Similarities.cosines(standardize(Features(raw), options.standardize, workers), workers)


def prepare_features(
    raw: Floats, options: CheckedOptions, workers: Workers, samples: np.random.Generator
) -> Prepared:
    """Standardize the features and resolve the kernel's width."""
    if hasattr(raw, "indptr"):
        return prepare_sparse(raw, options.kernel, options.standardize)
    features = standardize(Features(raw), options.standardize, workers)
    # A stream of its own: a width given as a number leaves the other samples as they are.
    (width_stream,) = samples.spawn(1)
    return prepare(features, options.kernel, options.gamma, options.degree, workers, width_stream)
