"""Splits by other strategies, in the same form as ours: `clustersplit baseline`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from clustersplit_cli.core.baselines import (
    EFFORT,
    LEAVE_ONE_DOMAIN_OUT,
    MAX_ITER,
    RESTARTS,
    SEEDED,
    Ground,
    leave_one_out,
)
from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.core.search.solution import Run, Solution, Step
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.run import Setting, Split, prepared_setting, report_on
from clustersplit_cli.pipeline.summarize import summarize
from clustersplit_cli.progress import Progress, Stopwatch, silent

_OF_THE_SEARCH = ("restarts", "effort", "max_iter", "solver")


def baseline(
    strategy: str,
    dataset: Dataset,
    options: CheckedOptions,
    *,
    domains: Categories | None = None,
    leave: str | None = None,
    config: Mapping[str, Any] | None = None,
    stopwatch: Stopwatch | None = None,
    progress: Progress = silent,
) -> Iterator[tuple[str | None, Split]]:
    """Split by the strategy and report on it: once, or for every domain in turn.

    Parameters
    ----------
    domains : of every row, for leaving one out.
    leave : the domain to leave out; None for all in turn.

    Yields
    ------
    The domain left out, or None, and the split.
    """
    watch = stopwatch or Stopwatch()
    # Nothing was optimised, so there is no fixed point to certify and nothing to bound.
    plain = replace(options, certify="never", bound="never")
    with prepared_setting(dataset, plain, watch, progress) as setting:
        if strategy == LEAVE_ONE_DOMAIN_OUT:
            left_out = domains_to_leave(domains, leave)
            assert domains is not None
            for name in left_out:
                members = leave_one_out(domains.codes, domains.values, name)
                yield name, _reported(strategy, setting, members, {**(config or {}), "leave": name}, watch)
            return
        progress(strategy, 0, 0)
        with watch.step("search"):
            members = SEEDED[strategy](ground(setting), setting.streams.search)
        yield None, _reported(strategy, setting, members, config or {}, watch)


def ground(setting: Setting) -> Ground:
    """What a strategy is given."""
    draw = None if setting.requirements.separates else setting.coupling.random_splits
    return Ground(setting.problem, setting.workers, draw)


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


def _reported(
    strategy: str, setting: Setting, members: Members, config: Mapping[str, Any], watch: Stopwatch
) -> Split:
    """Report on a given split; what only a search has is null or empty."""
    given = Solution(members, (Step("start", 0, np.inf),), (Run(strategy, 0, 0.0, 0.0, True),), 0, True)
    # A copy: the random splits of a report do not depend on how many reports were made before.
    fresh = replace(setting, streams=deepcopy(setting.streams))
    outcome = report_on(fresh, given, config=config, stopwatch=watch)
    report = summarize(outcome, watch)
    searched = {"restarts": RESTARTS, "effort": EFFORT, "max_iter": MAX_ITER, "solver": "selection"}
    used = searched if strategy == "unconstrained" else dict.fromkeys(_OF_THE_SEARCH)
    report = replace(
        report,
        config={"strategy": strategy, "leave": None, **report.config, **used},
        trace=(),
        search=None,
        restarts=(),
    )
    rows = setting.dataset.rows
    return Split(rows[~members], rows[members], report)
