"""The order of the steps for folds and named parts: from a dataset to a partition and its report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.certificate import certify_partition
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.groups import UnitParts, deal_out
from clustersplit_cli.core.constraints.quotas import PartQuotas, fold_quotas, part_quotas
from clustersplit_cli.core.effort import EFFORTS
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.groups import search_unit_parts
from clustersplit_cli.core.search.partition import Labels, evaluate_partition, measure, rest_squared
from clustersplit_cli.core.search.partition_search import PartitionSolution, search_partition
from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import PartedOutcome, PartedSetting, families_of, units_of
from clustersplit_cli.pipeline.portrait import portray_parts
from clustersplit_cli.pipeline.run import CBC_CERTIFICATE_ROWS, Streams, hold_kernel
from clustersplit_cli.pipeline.summarize_parts import summarize_parts
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.portrait import PartsPortrait
from clustersplit_cli.reports.summary import Report

BATCH = 4


@dataclass(frozen=True)
class Parting:
    """What to part into: folds, or parts with names and shares."""

    folds: int | None = None
    parts: tuple[tuple[str, Fraction], ...] = ()

    def quotas(self, dataset: Dataset, options: CheckedOptions) -> PartQuotas:
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
    ) -> PartQuotas:
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

    def arranged(self, dataset: Dataset, options: CheckedOptions) -> tuple[PartQuotas, UnitParts | None]:
        """The same, and where rows stay together, units that meet them within a tolerance."""
        quotas = self.quotas(dataset, options)
        if dataset.together is None:
            return quotas, None
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
            units = units_of(dataset, workers)
        assert units is not None
        pins = self._pins(dataset)
        if pins is not None:
            quotas = replace(quotas, pinned=pins)
        found = deal_out(quotas, units, options.tolerance.general)
        return found.quotas, found

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
            if forced.any():
                pins[forced] = names.index(name)
        return pins


@dataclass(frozen=True)
class Partition:
    """Row positions of every part, ascending, 0-based, in file order; the part of every row; the report.

    On request a portrait.
    """

    parts: Mapping[str, NDArray[np.int64]]
    labels: Labels
    report: Report
    portrait: PartsPortrait | None = None


def partition(
    dataset: Dataset,
    options: CheckedOptions,
    parting: Parting,
    *,
    config: Mapping[str, Any] | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = silent,
    with_portrait: bool = False,
) -> Partition:
    """Part the dataset and report on it; parameters as in `pipeline.split`."""
    watch = stopwatch or Stopwatch()
    with parted_setting(dataset, options, parting, watch, progress) as setting:
        with watch.step("search"):
            solution = find_partition(setting, progress)
        outcome = report_on_parts(setting, solution, config or {}, watch, progress)
        portrait = portray_parts(setting, solution.labels, outcome.random_rest) if with_portrait else None
    rows = {name: dataset.rows[solution.labels == part] for part, name in enumerate(setting.quotas.names)}
    return Partition(rows, solution.labels, summarize_parts(outcome, watch), portrait)


@contextmanager
def parted_setting(
    dataset: Dataset, options: CheckedOptions, parting: Parting, watch: Stopwatch, progress: Progress = silent
) -> Iterator[PartedSetting]:
    """State the problem and hold its kernel, within a pool of workers that ends with the block."""
    streams = Streams.from_seed(options.seed)
    with pool(options.threads) as workers:
        with watch.step("constraints"):
            quotas, units = parting.arranged(dataset, options)
        held = hold_kernel(dataset, options, streams, workers, watch, progress)
        yield PartedSetting(dataset, options, held, quotas, units, streams, workers)


def find_partition(setting: PartedSetting, progress: Progress = silent) -> PartitionSolution:
    """Search for the parts that differ most."""
    options = setting.options
    if setting.units is not None:
        return search_unit_parts(
            setting.held.geometry,
            setting.units,
            restarts=options.restarts,
            max_iter=options.max_iter,
            effort=EFFORTS[options.effort],
            rng=setting.streams.search,
            progress=progress,
        )
    return search_partition(
        setting.held.geometry,
        setting.image,
        setting.assigner,
        restarts=options.restarts,
        max_iter=options.max_iter,
        effort=EFFORTS[options.effort],
        rng=setting.streams.search,
        progress=progress,
    )


def report_on_parts(
    setting: PartedSetting,
    solution: PartitionSolution,
    config: Mapping[str, Any],
    watch: Stopwatch,
    progress: Progress = silent,
) -> PartedOutcome:
    """Measure a partition, whoever made it, and compare it with random ones."""
    geometry, options, k = setting.held.geometry, setting.options, setting.quotas.k
    with watch.step("search"):
        measured = evaluate_partition(geometry, solution.labels, k)
    certificate = None
    with watch.step("certificate"):
        progress("certificate", 0, 0)
        if options.certify != "never" and setting.units is None:
            by_cbc = options.certify == "always" or geometry.n <= CBC_CERTIFICATE_ROWS
            certificate = certify_partition(measured, solution.labels, setting.assigner, by_cbc=by_cbc)
    with watch.step("baseline"):
        random, rest = random_parts(setting, measured.ssq_total)
    return PartedOutcome(setting, config, solution, measured, certificate, random, rest)


def portrait_of_parts(setting: PartedSetting, labels: Labels, ssq_total: float) -> PartsPortrait:
    """Gather what an HTML report draws of parts made earlier; the same random ones are drawn anew."""
    return portray_parts(setting, labels, random_parts(setting, ssq_total)[1])


def random_parts(setting: PartedSetting, ssq_total: float) -> tuple[RandomMMD, NDArray[np.float64]]:
    """Measure random partitions that meet the same quotas: the same MMD, and each part's to the rest."""
    geometry, k = setting.held.geometry, setting.quotas.k
    values: list[float] = []
    rest: list[NDArray[np.float64]] = []
    streams = setting.streams.baseline
    for first in range(0, len(streams), BATCH):
        drawn = [setting.random(stream) for stream in streams[first : first + BATCH]]
        state = measure(geometry, np.stack(drawn, axis=1), k, geometry.search_dtype)
        sizes = state.sizes.astype(np.float64)
        pairs = (sizes.sum(axis=1) ** 2 - (sizes**2).sum(axis=1)) / 2
        squared = np.maximum(ssq_total - state.psi, 0.0) * geometry.n / pairs
        values += np.sqrt(squared).tolist()
        rest.append(np.sqrt(rest_squared(state)))
    overall = RandomMMD(len(values), float(np.mean(values)), float(np.std(values, ddof=1)), tuple(values))
    return overall, np.concatenate(rest)
