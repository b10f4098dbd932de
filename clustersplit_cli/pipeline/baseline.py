"""Splits by other strategies, in the same form as ours: `clustersplit baseline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from clustersplit_cli.core.baselines import (
    ANOTHER_OPTIMUM,
    EFFORT,
    LEAVE_ONE_DOMAIN_OUT,
    MAX_ITER,
    RESTARTS,
    leave_one_out,
)
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.data.dataset import Categories
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.engine import Context, Engine, Found
from clustersplit_cli.pipeline.run import Run, assess
from clustersplit_cli.pipeline.summarize import summarize

_OF_THE_SEARCH = ("restarts", "effort", "max_iter", "solver", "severity")


def baseline(
    strategy: str,
    engine: Engine[Any, Any],
    *,
    domains: Categories | None = None,
    leave: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> Iterator[tuple[str | None, Run]]:
    """Split by the strategy and report on it: once, or for every domain in turn.

    Parameters
    ----------
    domains : of every row, for leaving one out.
    leave : the domain to leave out; None for all in turn.

    Yields
    ------
    The domain left out, or None, and the split.
    """
    left_out: list[tuple[str, Members]] = []
    if strategy == LEAVE_ONE_DOMAIN_OUT:
        names = domains_to_leave(domains, leave)
        assert domains is not None
        left_out = [(name, leave_one_out(domains.codes, domains.values, name)) for name in names]
    context = engine.prepare(engine.survey())
    for name, members in left_out:
        yield name, _reported(strategy, context, members, {**(config or {}), "leave": name})
    if not left_out:
        yield None, _reported(strategy, context, context.draw(strategy), config or {})


def without_search(options: CheckedOptions) -> CheckedOptions:
    """Where nothing was optimised, there is no fixed point to certify and nothing to bound."""
    return replace(options, certify="never", bound="never")


def domains_to_leave(domains: Categories | None, leave: str | None) -> list[str]:
    """The domains to leave out, one after the other."""
    if domains is None:
        raise InputError(
            f"{LEAVE_ONE_DOMAIN_OUT} needs a column of domains, and there is none",
            hint="use --domain NAME or --domain-file FILE",
        )
    names = [str(value) for value in domains.values]
    if leave is not None and leave not in names:
        raise UsageError(
            f"--leave {leave}: there is no such domain", hint=f"choose one of {', '.join(names[:10])}"
        )
    return names if leave is None else [leave]


def searched_options(strategy: str) -> dict[str, Any]:
    """The options of a search as the strategy used them: only one of them searches."""
    if strategy != "unconstrained":
        return dict.fromkeys(_OF_THE_SEARCH)
    used = {"restarts": RESTARTS, "effort": EFFORT, "max_iter": MAX_ITER, "solver": "selection"}
    return {**used, "severity": None}


def _reported(strategy: str, context: Context[Found], parts: Any, config: Mapping[str, Any]) -> Run:
    """Report on a given split; what only a search has is null or empty."""
    found = context.measure(parts)
    config = {"strategy": strategy, "leave": None, **config}
    report = summarize(assess(context, found, config), context.watch)
    report = replace(report, config={**report.config, **searched_options(strategy)})
    return Run(context.written(found), report)


def several(engine: Engine[Any, Any], count: int, config: Mapping[str, Any]) -> Iterator[Run]:
    """Find up to so many splits that differ in many rows, and report on each, the best first.

    What a search has is in the report of the best alone; the others are splits to measure.
    """
    context: Any = engine.prepare(engine.survey())
    found = context.refine(context.explore())
    searched = context.account(found)
    others = [context.measure(parts) for parts in context.different(found, count)]
    others.sort(key=lambda each: -context.measures(each).mmd_squared)
    for place, each in enumerate(others):
        made = {"n_splits": count, **config}
        if place == 0:
            result = assess(context, each, made, searched)
        else:
            plain = replace(context, options=without_search(context.options))
            result = assess(plain, each, {"strategy": ANOTHER_OPTIMUM, "leave": None, **made})
        report = summarize(result, context.watch)
        if place:
            report = replace(report, config={**report.config, **searched_options(ANOTHER_OPTIMUM)})
        yield Run(context.written(each), report)
