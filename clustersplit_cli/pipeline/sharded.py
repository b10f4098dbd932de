"""Splits and measurements of datasets that are read in pieces, by whatever engine holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.geometry.factored import SplitState
from clustersplit_cli.core.parallel import Workers, pool
from clustersplit_cli.data.dataset import Categories, Dataset, InputFile
from clustersplit_cli.data.readers.fingerprint import Fingerprints
from clustersplit_cli.data.readers.naming import as_url, report_path
from clustersplit_cli.data.row_groups import Layout
from clustersplit_cli.engines.descent import Ground, Refined, at_target_counts, choose, descend
from clustersplit_cli.engines.executor import Engine
from clustersplit_cli.engines.options import NO_SPILL, STREAM, EngineOptions
from clustersplit_cli.engines.plan import StreamPlan
from clustersplit_cli.engines.rules import ByThreshold, Rule, Uniform
from clustersplit_cli.engines.store import Room
from clustersplit_cli.engines.stream import StreamEngine
from clustersplit_cli.engines.survey import Found
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline import blockwise_search as stages
from clustersplit_cli.pipeline.blockwise import Prospect, look, prospect
from clustersplit_cli.pipeline.blockwise_report import BlockwiseOutcome, summarize_blockwise
from clustersplit_cli.progress import Progress, Stopwatch, silent
from clustersplit_cli.reports.summary import Report


@dataclass(frozen=True)
class Job:
    """One dataset on one engine, with everything that says how to split it."""

    layout: Layout
    options: CheckedOptions
    engine_options: EngineOptions
    plan: StreamPlan
    engine: Engine
    workers: Workers
    watch: Stopwatch
    progress: Progress


@dataclass(frozen=True)
class BlockwiseSplit:
    """A split as a rule, its report, what was known before it, and the rows of the estimate, if any."""

    rule: Rule
    report: Report
    ahead: Prospect
    subsampled: stages.Subsampled | None


@contextmanager
def opened_job(
    layout: Layout,
    options: CheckedOptions,
    engine_options: EngineOptions,
    plan: StreamPlan,
    watch: Stopwatch,
    progress: Progress = silent,
) -> Iterator[Job]:
    """Open the engine; it ends with the block."""
    may_spill = engine_options.spill != NO_SPILL
    with pool(options.threads) as workers:
        if engine_options.engine == STREAM:
            room = Room(plan.factors, engine_options.spill_directory, may_spill)
            with closing(StreamEngine(layout, room, workers, progress)) as engine:
                yield Job(layout, options, engine_options, plan, engine, workers, watch, progress)
            return
        from clustersplit_cli.engines.dask import opened_cluster

        with opened_cluster(layout, engine_options, options.threads, options.budget, progress) as cluster:
            yield Job(layout, options, engine_options, plan, cluster, workers, watch, progress)


def split_blockwise(job: Job, config: Mapping[str, Any]) -> BlockwiseSplit:
    """Search on a sample, refine on all rows, and report on it."""
    with fingerprints(job.layout) as prints:
        surveyed = look(job.layout, job.engine, job.options, job.watch)
        job = _with_known_size(job, surveyed.n)
        ahead = prospect(
            job.layout,
            job.engine,
            job.options,
            surveyed,
            job.plan.memory.landmarks,
            job.plan.sample_rows,
            job.workers,
            job.watch,
        )
        with job.watch.step("search"):
            weights, start = stages.explore(ahead, job.options, job.workers, job.progress)
        with job.watch.step("kernel"):
            ground, lifted = stages.lift(job.engine, ahead, weights)
        with job.watch.step("refine"):
            refined = descend(ground, lifted, max_passes=job.engine_options.max_passes)
        with job.watch.step("certificate"):
            refined, certificate = stages.settle(
                ground, ahead, refined, certified=job.options.certify != "never"
            )
        return _reported(job, ahead, ground, refined, start, certificate, config, prints)


def measure_blockwise(
    job: Job, rule: Rule | None, config: Mapping[str, Any], *, certified: bool, converged: bool = True
) -> BlockwiseSplit:
    """Report on a split that is given as a rule; None draws a random one, as `baseline random` does."""
    with fingerprints(job.layout) as prints:
        surveyed = look(job.layout, job.engine, job.options, job.watch)
        job = _with_known_size(job, surveyed.n)
        landmarks = job.plan.memory.landmarks
        ahead = prospect(job.layout, job.engine, job.options, surveyed, landmarks, 0, job.workers, job.watch)
        if rule is None:
            source = Uniform.of([ahead.streams.search])
            quotas = at_target_counts(surveyed.limits)[:, None]
            rule = ByThreshold(source, choose(job.engine, source, quotas))
        with job.watch.step("kernel"):
            ground, held = stages.take_stock(job.engine, ahead, rule)
        given = Refined(held, (held.state.psi,), 0, converged, None)
        with job.watch.step("certificate"):
            given, certificate = stages.settle(ground, ahead, given, certified=certified)
        return _reported(job, ahead, ground, given, None, certificate, config, prints)


@dataclass(frozen=True)
class Sides:
    """Two sides, measured, and what was found on the way."""

    state: SplitState
    ahead: Prospect
    dataset: Dataset


def measure_sides(job: Job, rule: Rule) -> Sides:
    """Measure a split that is given as a rule, and nothing else."""
    with fingerprints(job.layout) as prints:
        surveyed = look(job.layout, job.engine, job.options, job.watch)
        job = _with_known_size(job, surveyed.n)
        landmarks = job.plan.memory.landmarks
        ahead = prospect(job.layout, job.engine, job.options, surveyed, landmarks, 0, job.workers, job.watch)
        with job.watch.step("kernel"):
            _, held = stages.take_stock(job.engine, ahead, rule)
        return Sides(held.state, ahead, _surveyed(job, ahead, prints))


def _reported(
    job: Job,
    ahead: Prospect,
    ground: Ground,
    refined: Refined,
    start: str | None,
    certificate: FixedPoint | None,
    config: Mapping[str, Any],
    prints: Fingerprints | None,
) -> BlockwiseSplit:
    rule = refined.split.rule
    with job.watch.step("bound"):
        bound = stages.upper_bound(ground, ahead, job.options.bound)
    with job.watch.step("baseline"):
        random = stages.random_baseline(ground, ahead.streams.baseline)
    with job.watch.step("subsample"):
        subsampled = stages.subsample(job.layout, ground, ahead, rule)
    dataset = _surveyed(job, ahead, prints)
    outcome = BlockwiseOutcome(
        dataset,
        job.options,
        config,
        job.plan.memory,
        ahead,
        ground,
        refined,
        start,
        certificate,
        bound,
        random,
        None if subsampled is None else subsampled.estimate,
        len(ahead.sample.numbers),
        job.engine_options.max_passes,
        job.watch.steps.get("refine", 0.0),
        job.engine.notes,
    )
    return BlockwiseSplit(rule, summarize_blockwise(outcome, job.engine, job.watch), ahead, subsampled)


def nameless(layout: Layout) -> Dataset:
    """A dataset of which no row was looked at: its columns and their roles."""
    nothing: NDArray[np.int32] = np.empty(0, np.int32)
    return Dataset(
        features=np.empty((0, layout.width), layout.features.dtype),
        feature_names=layout.feature_names,
        feature_columns=layout.features.names,
        categories={word: Categories(nothing, ()) for word in layout.family},
        rows=np.empty(0, np.int64),
        n_rows=layout.n_rows,
        notes=layout.notes,
    )


def surveyed_dataset(layout: Layout, found: Found, files: tuple[InputFile, ...] | None) -> Dataset:
    """The dataset without its rows: what was found out about it; files behind a URL have no hashes."""
    unhashed = tuple(InputFile(report_path(s.path), "features", s.bytes, None) for s in layout.stamps)
    return replace(
        nameless(layout),
        n_excluded=found.n_excluded,
        n_dropped=found.n_invalid,
        read_from=lambda: unhashed if files is None else files,
    )


def _surveyed(job: Job, ahead: Prospect, prints: Fingerprints | None) -> Dataset:
    files = None if prints is None else prints.files()
    return surveyed_dataset(job.layout, ahead.surveyed.found, files)


@contextmanager
def fingerprints(layout: Layout) -> Iterator[Fingerprints | None]:
    """Hash the files while they are read; those behind a URL are not read once more for that."""
    if as_url(layout.path) is not None:
        yield None
        return
    with Fingerprints([(stamp, "features") for stamp in layout.stamps]) as prints:
        yield prints


def _with_known_size(job: Job, n: int) -> Job:
    """The same job with no more landmarks than there are rows."""
    memory = job.plan.memory
    if memory.landmarks is None or memory.landmarks <= n:
        return job
    return replace(job, plan=replace(job.plan, memory=replace(memory, landmarks=n)))
