"""The page of a result that is in memory: its rows, its portrait, and the call that makes it again."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.cli.commands.report import refuse_other_input
from clustersplit_cli.cli.options import checked_options
from clustersplit_cli.cli.replay import earlier_run, replayed_options, reproducing_command
from clustersplit_cli.data.foreign import PassedRows
from clustersplit_cli.data.in_memory import Description
from clustersplit_cli.data.readers import load
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.options import OPTIONS
from clustersplit_cli.pipeline.local.engine import opened_local
from clustersplit_cli.python.arguments import SplitInput, source_from
from clustersplit_cli.python.words import PYTHON_NAMES
from clustersplit_cli.reports.html import render_html
from clustersplit_cli.similarity import is_of_features, pairs_of
from clustersplit_cli.verification.recorded import recorded_partition

if TYPE_CHECKING:
    from clustersplit_cli.reports.portrait import Portrait
    from clustersplit_cli.reports.summary import Report

_ELSEWHERE = ("features", "label_file", "domain_file", "metadata", "memory", "threads")
SAME = 1e-5
"""How far the MMD of the rows given may be from that of the report, relative to it."""


def rows_of(report: Report, directory: Path | None, X: Any, y: Any, domains: Any, groups: Any) -> SplitInput:
    """The rows of a result that has none: those given, or those of the files that its report names."""
    content = report.to_dict()
    config = content["config"]
    into = recorded_partition(config)
    if X is None:
        if directory is None:
            raise UsageError("this result has no rows: it was unpickled", hint="pass X, y and domains")
        earlier = earlier_run(directory, content, dict.fromkeys(_ELSEWHERE))
        dataset = load(earlier.request)
        refuse_other_input(content, dataset)
        return SplitInput(PassedRows(), Description(), dataset, earlier.options, into)
    together = config.get("keep_together")
    if together is not None and groups is None:
        groups = together if is_of_features(together) else None
        if groups is None:
            raise UsageError(f"the rows of one {together} stayed together", hint="pass groups too")
    said = Description(
        y=y,
        domains=domains,
        groups=groups,
        label_bins=config.get("label_bins"),
        drop_invalid=bool(config.get("drop_invalid")),
        pairs=pairs_of(config.get("kernel"), distances=bool(config.get("distances"))),
    )
    options = checked_options(replayed_options(config, Path("report.json")))
    stratify = config.get("stratify") or ["none"]
    return source_from(X, said, options, stratify=stratify, columns=None, transformer=None, into=into)


def portrait_of(source: SplitInput, labels: NDArray[np.int64], report: Report) -> Portrait:
    """Measure the result again, and gather what a page draws.

    Raises
    ------
    InputError
        If these are not the rows of the report.
    """
    dataset = source.dataset
    if dataset.n_rows != len(labels):
        raise InputError(f"X has {dataset.n_rows} rows, and the report is about {len(labels)}", hint=_CURE)
    given = labels[dataset.rows]
    with opened_local(dataset, source.options, source.into) as engine:
        context = engine.prepare(engine.survey())
        found = context.measure(given)
        _refuse_others(context.measures(found).mmd_squared, report)
        return context.portrait(found)


_CURE = "pass the rows that were split, unchanged and in the same order"


def _refuse_others(squared: float, report: Report) -> None:
    if not math.isclose(squared, report.mmd.squared, rel_tol=SAME, abs_tol=1e-9):
        raise InputError(
            f"the MMD of these rows is {max(squared, 0.0) ** 0.5:.6g}, and the report says "
            f"{report.mmd.value:.6g}",
            hint=_CURE,
        )


def page(report: Report, portrait: Portrait, source: SplitInput, directory: Path | None) -> str:
    """Render the page."""
    content = report.to_dict()
    stated = content["config"].get("features")
    if directory is not None and stated is not None:
        command, title = reproducing_command(content, Path(stated), directory), Path(stated).name
    else:
        command, title = call_of(report), "X"
    return render_html(content, portrait, title=title, command=command)


_SHOWN = (
    *("holdout", "k", "parts", "tolerance", "rounding", "label_bins", "severity", "at_mmd"),
    *("kernel", "gamma", "degree", "standardize", "nystrom", "restarts", "effort", "max_iter", "seed"),
)


def call_of(report: Report) -> str:
    """The call that makes a result again, with all but default options."""
    config = report.config
    function = "cluster_split"
    if config.get("parts") is not None:
        function = "cluster_parts"
    elif config.get("k") is not None:
        function = "cluster_folds"
    words = ["X"]
    cells = ",".join(config.get("stratify") or ())
    words += ["y"] * ("label" in cells) + ["domains=domains"] * ("domain" in cells)
    words += ["groups=groups"] * (config.get("keep_together") is not None)
    for name in _SHOWN:
        value = config.get(name)
        default = OPTIONS[name].default
        if value is None or str(value) in (str(default), "0.0", "off") or (name == "k" and value == default):
            continue
        words.append(f"{PYTHON_NAMES.get(name, name)}={value!r}")
    return f"{function}({', '.join(words)})"
