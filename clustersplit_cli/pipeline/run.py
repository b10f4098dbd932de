"""The order of the steps: from rows, wherever an engine has them, to a partition and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from clustersplit_cli.core.baselines import RandomMMD
from clustersplit_cli.core.bound.bound import UpperBound
from clustersplit_cli.core.certificate import FixedPoint
from clustersplit_cli.core.severity import Grade, Scale, nearest, refuse_unreachable
from clustersplit_cli.options import SEVERITY
from clustersplit_cli.pipeline.background import Background, Later
from clustersplit_cli.pipeline.engine import Context, Engine, Found, Idle, Surveyed
from clustersplit_cli.pipeline.result import RunResult, Searched
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.reports.portrait import Portrait
from clustersplit_cli.reports.summary import Report


@dataclass(frozen=True)
class Run:
    """A partition in its engine's own form, its report, and on request a portrait."""

    parts: Any
    report: Report
    portrait: Portrait | None = None


def run(
    engine: Engine[Surveyed, Found],
    *,
    config: Mapping[str, Any] | None = None,
    with_portrait: bool = False,
) -> Run:
    """Find the parts that differ most, and report on them.

    Parameters
    ----------
    config : options outside this function's reach that the report should repeat.
    with_portrait : also gather what an HTML report draws.
    """
    with Background(engine.spare_threads) as background:
        surveyed = engine.survey()
        program = background.submit(engine.state, surveyed)
        context = engine.prepare(surveyed)

        reference: Later[tuple[UpperBound | None, RandomMMD]] = background.later(bound_and_baseline)
        if context.idle_from is Idle.EXPLORING:
            reference.begin(context)
        explored = context.explore()
        if context.idle_from is Idle.REFINING:
            reference.begin(context)
        found = context.refine(explored)

        certificate = background.submit(lambda: context.certify(found, program.result()))
        searched = context.account(found)
        context.progress("certificate", 0, 0)
        bound, random = reference.result(context, found)
        graded, best, config = None, None, config or {}
        if context.options.is_graded:
            found, graded = grade(context, found, random)
        elif searched is not None and not context.options.is_searched_for:
            found, best = for_aim(context, found)
        result = gather(context, found, certificate.result(), bound, random, config, searched, graded, best)
        portrait = context.portrait(found, random) if with_portrait else None
    engine.await_hashes()
    parts, target = context.written(found), result.target
    if target is not None and target.matching is not None:
        parts = replace(parts, weights=target.matching.weights)
    return Run(parts, summarize(result, context.watch), portrait)


def for_aim(context: Context[Found], hardest: Found) -> tuple[Found, tuple[float, float]]:
    """The split for another aim than the hardest, and MMD and Psi of the hardest."""
    measured = context.measures(hardest)
    return context.aimed(hardest), (measured.mmd, measured.psi)


def grade(context: Context[Found], best: Found, random: RandomMMD, draw: int = 0) -> tuple[Found, Grade]:
    """Make a partition whose MMD lies between that of random ones and that of the best one found.

    Parameters
    ----------
    draw : makes another one with the same MMD.
    """
    context.progress("grade", 0, 0)
    with context.watch.step("grade"):
        measured, options, found = context.measures(best), context.options, best
        scale, severity = Scale(random.mean, measured.mmd), options.severity
        at_mmd = _asked_mmd(context, best, scale)
        if at_mmd is not None:
            refuse_unreachable(scale, at_mmd)
            severity = scale.clipped(at_mmd)
        if severity < 1:
            _, parts = nearest(context.paths(best, draw), scale, severity, (scale.best, None))
            found = best if parts is None else context.with_parts(best, parts)
        return found, _graded(context, found, scale, measured.psi)


def _graded(context: Context[Found], found: Found, scale: Scale, best_psi: float) -> Grade:
    at_mmd = _asked_mmd(context, found, scale)
    return Grade.of(scale, context.options.severity, at_mmd, context.measures(found).mmd, best_psi)


def _asked_mmd(context: Context[Found], found: Found, scale: Scale) -> float | None:
    """The MMD that was asked for: as it was given, or that of all rows and the target, as far as it goes."""
    if context.options.aim == SEVERITY:
        return min(max(context.wanted_mmd(found), scale.random), max(scale.best, scale.random))
    return context.options.at_mmd


def assess(
    context: Context[Found],
    found: Found,
    config: Mapping[str, Any],
    searched: Searched | None = None,
    best: tuple[float, float] | None = None,
) -> RunResult:
    """Report on a partition, whoever made it, and compare it with random ones.

    Parameters
    ----------
    best : MMD and Psi of the hardest one that was found, where this one is graded or for another aim.
    """
    context.progress("certificate", 0, 0)
    # A domain that is left out is compared with random splits of its own size.
    left_out = config.get("leave") is not None
    with Background(context.spare_threads) as background:
        certificate = background.submit(context.certify, found)
        bound, random = bound_and_baseline(context, found, same_size=left_out)
        graded = None
        if best is not None and context.options.is_graded:
            graded = _graded(context, found, Scale(random.mean, best[0]), best[1])
        certified = certificate.result()
        return gather(context, found, certified, bound, random, config, searched, graded, best)


def bound_and_baseline(
    context: Context[Found], found: Found | None = None, *, same_size: bool = False
) -> tuple[UpperBound | None, RandomMMD]:
    """What partitions can reach: an upper bound on their MMD, and the MMD of random ones."""
    with context.watch.step("bound"):
        bound = context.bound(found)
    with context.watch.step("baseline"):
        return bound, context.random_baseline(found, same_size=same_size)


def gather(
    context: Context[Found],
    found: Found,
    certificate: FixedPoint | None,
    bound: UpperBound | None,
    random: RandomMMD,
    config: Mapping[str, Any],
    searched: Searched | None,
    graded: Grade | None = None,
    best: tuple[float, float] | None = None,
) -> RunResult:
    """Put together what the run found out."""
    estimate, measures = context.subsample(found), context.measures(found)
    if graded is not None:
        best = graded.scale.best, graded.best_psi
    elif context.options.is_searched_for:
        best = measures.mmd, measures.psi
    converged = context.has_converged(found, certificate)
    searched = None if searched is None else searched.ending(converged=converged)
    return RunResult(
        about=context.about(searched=searched is not None),
        config=config,
        measures=measures,
        constraints=context.constraints(found),
        searched=searched,
        converged=converged,
        certificate=certificate,
        bound=bound,
        random=random,
        estimate=estimate,
        graded=graded,
        notes=context.notes(found, converged=converged, sized=config.get("leave") is None),
        engine=context.engine_summary(found),
        target=context.beside_target(found, best),
    )
