"""The order of the steps of an evaluation: from a dataset and a plan to a report."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.errors import TrialError
from clustersplit_cli.evaluation import summarize
from clustersplit_cli.evaluation.choosing import choose
from clustersplit_cli.evaluation.commands import CommandRunner, Template
from clustersplit_cli.evaluation.curve import CURVE_LEVELS, draw_curve
from clustersplit_cli.evaluation.probes import ProbeData, probe_space
from clustersplit_cli.evaluation.protocol import prepare, run_trials
from clustersplit_cli.evaluation.rounds import Arena, Round, make_rounds, target_rounds
from clustersplit_cli.evaluation.space import Space
from clustersplit_cli.evaluation.statistics import discrepancy_and_test
from clustersplit_cli.evaluation.store import TrialStore
from clustersplit_cli.evaluation.strategies import MIX_UP, REFERENCE, WEIGHTED, taking_part
from clustersplit_cli.evaluation.trials import Record
from clustersplit_cli.evaluation.workers import ProbeRunner, Runner
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.summarize import tool_versions
from clustersplit_cli.progress import Progress, Stopwatch, peak_memory, silent
from clustersplit_cli.reports.evaluation.summary import (
    EVALUATION_SCHEMA_VERSION,
    EvaluationInput,
    EvaluationReport,
    TrialCounts,
)
from clustersplit_cli.reports.summary import FileSummary, Notice, Timing


@dataclass(frozen=True, kw_only=True)
class EvaluationPlan:
    """What to evaluate, and who trains: a probe, or the user's command with its own hyper-parameters."""

    strategies: tuple[str, ...]
    search: int
    repeats: int
    folds: int
    select: str
    refit: bool
    domains: tuple[str, ...] | None
    jobs: int
    probe: str | None
    probe_rows: int
    command: Template | None = None
    space: Space | None = None
    timeout: float | None = None
    curve: bool = False


def evaluate(
    dataset: Dataset,
    features: Path,
    options: CheckedOptions,
    plan: EvaluationPlan,
    directory: Path,
    *,
    config: Mapping[str, Any],
    resume: bool = False,
    force: bool = False,
    stopwatch: Stopwatch | None = None,
    progress: Progress = silent,
) -> EvaluationReport:
    """Evaluate, keeping every finished trial in the directory.

    Parameters
    ----------
    dataset : all rows, with the categories `label` and `domain`.
    features : the input, as the command is to find it.
    config : all options as resolved, for the report.
    """
    watch = stopwatch or Stopwatch()
    arena = Arena.of(dataset)
    adapt = plan.command is not None and plan.command.asks_for("adapt")
    rounds = make_rounds(arena, plan.domains, plan.repeats, options.seed, adapt=adapt)
    strategies, notices = _strategies(plan, len(arena.names) - bool(rounds))
    rounds = [*target_rounds(arena, plan.repeats, options.seed), *rounds]  # it may be refused
    notices += _untested(arena, rounds)
    space = plan.space or probe_space(plan.probe or "")
    with TrialStore(directory, asked(dataset, options, plan), resume=resume, force=force) as store:
        runner = _runner(plan, arena, store, features)
        with watch.step("split"):
            contests = prepare(
                arena,
                rounds,
                strategies,
                space,
                options,
                store,
                search=plan.search,
                folds=plan.folds,
                refit=plan.refit,
                levels=CURVE_LEVELS if plan.curve else (),
                progress=progress,
            )
        with watch.step("train"):
            records = run_trials(contests, store, runner, progress)
    trials = summarize.count_trials(records)
    _refuse_nothing_but_failures(trials, records, directory)
    if trials.n_failed:
        notices.append(
            Notice(
                "failed_trials",
                f"{trials.n_failed} of {trials.n_trials} trials failed; the first: {trials.failed[0].error}",
            )
        )
    known = [contest for contest in contests if not contest.round.is_of_target]
    runs = choose(known, records, plan.select, REFERENCE)
    names = (("train", "refit") if plan.refit else ("train",)) if known else ()
    curve = None
    if plan.curve:
        most = None if plan.command is not None else plan.probe_rows
        how: dict[str, Any] = {"select": plan.select, "reference": REFERENCE, "most_rows": most}
        curve = draw_curve(contests, records, runs, **how)
    return EvaluationReport(
        schema_version=EVALUATION_SCHEMA_VERSION,
        command="evaluate",
        tool=tool_versions(),
        input=EvaluationInput(
            files=tuple(FileSummary(f.path, f.role, f.bytes, f.sha256) for f in dataset.files),
            n_rows=dataset.n_rows,
            n_features=dataset.features.shape[1],
            n_classes=len(dataset.categories["label"].values),
            domains=arena.names,
            n_excluded=dataset.n_excluded,
            n_dropped=dataset.n_dropped,
        ),
        config=dict(config),
        seed=options.seed,
        reference=REFERENCE,
        protocols=tuple(summarize.protocol(name, runs, REFERENCE) for name in names),
        training_sets=summarize.training_sets(runs, REFERENCE),
        discrepancy=discrepancy_and_test(runs),
        curve=curve,
        runs=tuple(runs),
        trials=trials,
        timing=Timing(dict(watch.steps), watch.total, peak_memory()),
        warnings=(*(Notice(*note) for note in dataset.notes), *notices),
    )


def asked(dataset: Dataset, options: CheckedOptions, plan: EvaluationPlan) -> dict[str, Any]:
    """Everything that a trial's result depends on: not how many there are, nor how they are read."""
    training: dict[str, Any] = {"probe": plan.probe, "probe_rows": plan.probe_rows}
    if plan.command is not None:
        training = {"command": list(plan.command.words), "space": repr(plan.space)}
    return {
        "input": sorted([file.role, file.sha256] for file in dataset.files),
        "rows": hashlib.sha256(np.ascontiguousarray(dataset.rows).tobytes()).hexdigest(),
        "columns": list(dataset.feature_columns),
        "splitting": {
            "holdout": str(options.holdout),
            "rounding": options.rounding,
            "gamma": options.gamma,
            "standardize": options.standardize,
            "nystrom": options.nystrom,
            "restarts": options.restarts,
            "effort": options.effort,
            "max_iter": options.max_iter,
            "folds": plan.folds,
        },
        "seed": options.seed,
        "training": training,
    }


def _strategies(plan: EvaluationPlan, n_development: int) -> tuple[tuple[str, ...], list[Notice]]:
    """Who takes part, and a word on who cannot."""
    kept, left_out = taking_part(plan.strategies, n_development)
    notices = []
    if left_out:
        notices.append(
            Notice(
                "one_development_domain",
                f"left out, since without the evaluation domain there is one domain: {', '.join(left_out)}",
            )
        )
    if MIX_UP in kept and plan.command is not None and not plan.command.asks_for("mixup"):
        kept = tuple(name for name in kept if name != MIX_UP)
        notices.append(
            Notice("no_mix_up", "mix-up is left out: the command has no {mixup} for the rows to mix")
        )
    if WEIGHTED in kept and plan.command is not None and not plan.command.asks_for("weights"):
        kept = tuple(name for name in kept if name != WEIGHTED)
        notices.append(
            Notice("no_weights", "weighted is left out: the command has no {weights} for those of validation")
        )
    return kept, notices


def _untested(arena: Arena, rounds: Sequence[Round]) -> list[Notice]:
    """Say which rows of evaluation domains have a class that no development row has."""
    found = {}
    for round_ in rounds:
        whole = int((arena.domains == round_.place).sum())
        left = whole - len(round_.test) - len(round_.adapt)
        if left > 0 and round_.repeat == 0:
            found[round_.domain] = left
    if not found:
        return []
    counts = ", ".join(f"{count} of {domain}" for domain, count in found.items())
    return [
        Notice("unknown_classes", f"rows of classes that no other domain has are not tested on: {counts}")
    ]


def _runner(plan: EvaluationPlan, arena: Arena, store: TrialStore, features: Path) -> Runner:
    if plan.command is not None:
        return CommandRunner(
            plan.command, store.directory, features, arena.dataset.rows, plan.jobs, plan.timeout
        )
    data = ProbeData(arena.dataset.features, arena.labels, arena.domains, arena.names, plan.probe_rows)
    return ProbeRunner(data, plan.jobs)


def _refuse_nothing_but_failures(trials: TrialCounts, records: Mapping[str, Record], directory: Path) -> None:
    if trials.n_failed < len(records):
        return
    first = trials.failed[0]
    log = directory / "trials" / first.key / "log.txt"
    raise TrialError(
        f"all {trials.n_trials} trials failed; the first: {first.error}",
        hint=f"see {log}" if log.exists() else "see trials.jsonl in the output directory",
    )
