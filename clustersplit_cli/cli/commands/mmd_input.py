"""What `clustersplit mmd` is asked to compare: the forms of the command, checked and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.console import progress_bar
from clustersplit_cli.cli.engine import ChosenEngine, refuse_local_urls, refuse_sharded
from clustersplit_cli.cli.options import checked_options, near_of, was_said
from clustersplit_cli.cli.replay import with_options_of
from clustersplit_cli.cli.request import inputs_of, read_request
from clustersplit_cli.cli.run import PlanShown, opened_engine
from clustersplit_cli.core.mmd.estimators import ESTIMATORS
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.destination import REPORT_NAME
from clustersplit_cli.data.readers import load, peek
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.data.row_labels import files_of_pair, files_of_sides
from clustersplit_cli.data.runs import load_run, read_indices
from clustersplit_cli.engines.options import AUTO, LOCAL, STREAM, EngineOptions
from clustersplit_cli.engines.plan import MeasuringTask, plan_measuring
from clustersplit_cli.errors import ClusterSplitError, InputError, MemoryPlanError, UsageError, readable
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.mmd.groups import Question, compare_files, compare_groups, compare_sides
from clustersplit_cli.pipeline.mmd.split import given_sides, mmd_of_split
from clustersplit_cli.reports.mmd.summary import EarlierReport
from clustersplit_cli.similarity import pairs_of
from clustersplit_cli.verification.files import stated_formats
from clustersplit_cli.verification.recorded import report_of

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.runs import SplitRun
    from clustersplit_cli.pipeline.mmd.groups import Comparison
    from clustersplit_cli.pipeline.mmd.split import GivenSides
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.reports.mmd.summary import MMDReport

_KERNEL_OPTIONS = ("kernel", "gamma", "degree", "standardize", "nystrom", "seed", "exact")
_MEASURING_OPTIONS = ("kernel", "gamma", "degree", "standardize", "nystrom", "seed", "memory", "threads")
_COMPANIONS = ("label_file", "domain_file", "metadata")
# Strategies whose sides are not chosen by looking at the features.
_NOT_OPTIMISED = ("random", "leave-one-domain-out")


@dataclass(frozen=True)
class MMDRequest:
    """One call of the command: its options as resolved, and the run it asks about, if any."""

    given: Mapping[str, Any]
    checked: CheckedOptions
    within: tuple[str, ...]
    run: SplitRun | None
    reuses_report: bool

    @classmethod
    def from_options(cls, context: typer.Context) -> MMDRequest:
        """Check the options and take those of the split's report where the user gave none."""
        named = _as_evaluation(context.params)
        near_of(named)
        _check_form(named)
        within = _words(context.params["within"])
        if context.params["by"] is not None and context.params["by"] in within:
            raise UsageError(
                f"--by and --within both name {context.params['by']!r}", hint="compare within another column"
            )
        run = None
        given = dict(context.params)
        if given["split"] is not None:
            report = report_of(given["split"])
            run = load_run(given["split"], report)
            given = with_options_of(report, context, given["split"] / REPORT_NAME, ("stratify", "id"))
        given |= {name: named[name] for name in ("evaluation", "evaluation_domain")} | {"target": None}
        given.setdefault("stratify", ["none"])
        given.setdefault("id", None)
        if given["exact"]:
            if was_said(context, "nystrom") and given["nystrom"] != "off":
                raise UsageError(
                    f"--exact and --nystrom {given['nystrom']} contradict each other", hint="use one of them"
                )
            given["nystrom"] = "off"
        checked = checked_options({name: given[name] for name in _MEASURING_OPTIONS})
        reuses = run is not None and not any(was_said(context, name) for name in _KERNEL_OPTIONS)
        if (
            given["fail_below_random"] is not None
            and not given["permutations"]
            and not (reuses and not within)
        ):
            raise UsageError(
                "--fail-below-random needs random regroupings to compare with", hint="add --permutations 100"
            )
        return cls(given, checked, within, run, reuses)

    @property
    def is_remote(self) -> bool:
        """Whether features are behind a URL, which is read in pieces."""
        return any(as_url(path) is not None for path in self.given["features"])

    def request(self) -> ReadRequest:
        """What to read, where the sides of a split of one dataset are compared."""
        return self._requests()[0]

    def earlier_report(self, *, same_input: bool) -> EarlierReport | None:
        """What the split's own report says of it."""
        if self.run is None:
            return None
        stated = self.run.report
        random = stated["baselines"]["random"]["mmd_mean"]
        return EarlierReport(str(self.run.directory), stated["mmd"]["value"], random, same_input, False)

    def inputs(self) -> list[Path]:
        """Every file or directory that will be read."""
        paths = [path for request in self._requests() for path in inputs_of(request)]
        named = (self.given[name] for name in ("split", "train", "val", "evaluation"))
        return paths + [path for path in named if path is not None]

    def read(self, progress: Progress) -> Comparison:
        """Read everything and say which rows are compared with which."""
        requests = self._requests()
        sides = None
        if self.run is not None:
            sides = self.run.train, self.run.val
        elif self.given["train"] is not None:
            sides = read_indices(self.given["train"], "train"), read_indices(self.given["val"], "val")
        if not any(request.exclude for request in requests):  # only reading tells how many rows are left
            self.check_memory()
        datasets = [load(request, progress) for request in requests]
        if sides is not None:
            return compare_sides(
                datasets[0],
                *sides,
                self.within,
                evaluation=datasets[1] if len(datasets) > 1 else None,
                evaluation_domain=self.given["evaluation_domain"],
                fit_on_sides=self.run is not None,
            )
        if self.given["by"] is not None:
            return compare_groups(datasets[0], self.given["by"], self.within)
        return compare_files(datasets, [readable(str(path)) for path in self.given["features"]], self.within)

    def question(self, comparison: Comparison) -> Question:
        """What to find out."""
        strategy = None if self.run is None else self.run.report["config"].get("strategy")
        return Question(
            estimator=self.given["estimator"],
            permutations=self.given["permutations"],
            near=near_of(self.given),
            earlier=None if self.run is None else self._earlier(self.run, comparison),
            optimised=self.run is not None and strategy not in _NOT_OPTIMISED,
        )

    def config(self) -> dict[str, Any]:
        """The options that say what was compared, for the report."""
        given = self.given
        names = ("split", "train", "val", "evaluation", *_COMPANIONS)
        return {
            "features": [str(path) for path in given["features"]],
            **{name: None if given[name] is None else str(given[name]) for name in names},
            "by": given["by"],
            "within": ",".join(self.within) or None,
            "evaluation_domain": given["evaluation_domain"],
            "columns": list(given["columns"] or ()),
            "label": given["label"],
            "domain": given["domain"],
            "exclude": list(given["exclude"] or ()),
            "drop_invalid": given["drop_invalid"],
            "impute": given["impute"],
            "distances": given["distances"],
            "exact": given["exact"],
        }

    def _requests(self) -> list[ReadRequest]:
        """What to read: FEATURES, and the evaluation file after it."""
        given = self.given
        words = list(self.within)
        if given["by"] is not None:
            words.append(given["by"])
        if given["evaluation_domain"] is not None:
            words.append("domain")
        requests = []
        for path in given["features"]:
            request = read_request(path, {**given, "exclude": self._exclusions()})
            # The columns that the split was stratified by stay what they were: no features.
            family = dict.fromkeys([*(request.stratify or ()), *words])
            requests.append(replace(request, stratify=tuple(family)))
        if given["evaluation"] is not None:
            # Its rows are not those of FEATURES: companions and exclusions do not apply to it.
            alone = {**given, **dict.fromkeys(_COMPANIONS), "exclude": None}
            names = {name: given[name] if name in self.within else None for name in ("label", "domain")}
            request = read_request(given["evaluation"], {**alone, **names})
            requests.append(replace(request, stratify=self.within))
        return requests

    def _exclusions(self) -> list[str]:
        """Rows that no group may have; the evaluation domain is excluded from the sides only."""
        name, exclude = self.given["evaluation_domain"], list(self.given["exclude"] or ())
        if name is None:
            return exclude
        taken = {f"{word}={name}" for word in ("domain", self.given["domain"])}
        return [text for text in exclude if text not in taken]

    def check_memory(self) -> None:
        """Refuse a comparison of all rows that cannot fit, before any are read.

        Raises
        ------
        MemoryPlanError
        """
        extents = [peek(request) for request in self._requests()]
        n = sum(extent.n_rows or 0 for extent in extents)
        d = max(extent.n_features or 0 for extent in extents)
        itemsize = max(extent.itemsize or 0 for extent in extents)
        task = MeasuringTask(n, d, itemsize, 1, (), (), 0, self.checked.threads)
        plan_measuring(task, is_linear=True, nystrom="auto", budget=self.checked.budget)

    def _earlier(self, run: SplitRun, comparison: Comparison) -> Any:
        """What the split's report says of the same rows."""
        value = float(run.report["mmd"]["value"])
        random = float(run.report["baselines"]["random"]["mmd_mean"])
        files = run.report["input"]["files"]
        before = [file["sha256"] for file in files if file["role"] == "features"]
        now = [file.sha256 for file in comparison.files if file.role == "features"][: len(before)]
        return EarlierReport(str(run.directory), value, random, before == now, self.reuses_report)


def _as_evaluation(given: Mapping[str, Any]) -> dict[str, Any]:
    """Say --target as --evaluation or --evaluation-domain."""
    target = given["target"]
    if target is None:
        return dict(given)
    for name in ("evaluation", "evaluation_domain"):
        if given[name] is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"--target and {option} are both given", hint="give one of them")
    named = ReadRequest(Path(), target=target)
    if target in ("", "domain="):
        raise UsageError(f"--target '{target}' names nothing", hint="for example --target domain=sketch")
    found = {"evaluation": named.target_file, "evaluation_domain": named.target_domain}
    return {**given, **found}


def _check_form(given: Mapping[str, Any]) -> None:
    """Refuse options that do not make one of the command's forms."""
    forms = {
        "--split": given["split"] is not None,
        "--train and --val": given["train"] is not None or given["val"] is not None,
        "--by": given["by"] is not None,
        "several files": len(given["features"]) > 1,
    }
    asked = [form for form, is_asked in forms.items() if is_asked]
    if not asked:
        raise UsageError(
            f"nothing to compare {given['features'][0]} with",
            hint="give --split DIR, --train and --val, --by COLUMN, or a second file",
        )
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} cannot be combined", hint="use one of them")
    if (given["train"] is None) != (given["val"] is None):
        absent = "--train" if given["train"] is None else "--val"
        raise UsageError(f"{absent} is missing: a split has two sides", hint="give both --train and --val")
    has_sides = forms["--split"] or forms["--train and --val"]
    evaluated = [name for name in ("evaluation", "evaluation_domain") if given[name] is not None]
    if evaluated and not has_sides:
        said = "target" if given["target"] is not None else evaluated[0].replace("_", "-")
        raise UsageError(
            f"--{said} is for the sides of a split", hint="add --split DIR, or --train and --val"
        )
    if len(evaluated) > 1:
        raise UsageError("--evaluation and --evaluation-domain are both given", hint="give one of them")
    if given["fail_if_invalid"] and not evaluated:
        raise UsageError(
            "--fail-if-invalid needs an evaluation set",
            hint="add --evaluation FILE or --evaluation-domain NAME",
        )
    if forms["several files"] and any(given[name] is not None for name in _COMPANIONS):
        raise UsageError(
            "--label-file, --domain-file and --metadata belong to one file of features",
            hint="put their columns into the files that are compared",
        )
    given_pairs = pairs_of(given["kernel"], distances=given["distances"])
    if given_pairs is not None and (forms["several files"] or given["evaluation"] is not None):
        raise UsageError(
            f"{given_pairs} of the rows of one file say nothing about those of another",
            hint="put all rows into one matrix, and use --by or --evaluation-domain",
        )
    if given["estimator"] not in ESTIMATORS:
        raise UsageError(
            f"--estimator '{given['estimator']}' is unknown", hint=f"choose one of {', '.join(ESTIMATORS)}"
        )
    if given["permutations"] < 0:
        raise UsageError(
            f"--permutations must be at least 0, got {given['permutations']}",
            hint="for example --permutations 1000",
        )


def _words(text: str | None) -> tuple[str, ...]:
    """Read --within: column words separated by commas."""
    if text is None:
        return ()
    words = tuple(word.strip() for word in text.split(","))
    if "" in words or len(set(words)) < len(words):
        raise UsageError(
            f"--within '{text}' has an empty or repeated column", hint="for example --within label"
        )
    return words


def choose_for_mmd(task: MMDRequest, options: EngineOptions) -> EngineOptions:
    """Decide which engine `auto` is: stream for URLs, and for the sides of a split that do not fit memory.

    What cannot be read in pieces is left to the local engine, which says what does not fit.
    """
    refuse_local_urls(options, is_remote=task.is_remote)
    if options.engine != AUTO:
        return options
    if task.is_remote:
        return replace(options, engine=STREAM)
    try:
        task.check_memory()
    except MemoryPlanError:
        try:
            _refuse_others(task)
            open_layout(task.request())
        except ClusterSplitError:
            return replace(options, engine=LOCAL)
        if task.checked.nystrom != "off":
            return replace(options, engine=STREAM)
    except InputError:  # told when it is read
        pass
    return replace(options, engine=LOCAL)


def _refuse_others(task: MMDRequest) -> None:
    """Refuse what is not about the sides of one split, or is more than their MMD."""
    given = task.given
    in_memory = {
        "several files": len(given["features"]) > 1,
        "--by": given["by"] is not None,
        "--within": given["within"] is not None,
        "--evaluation": given["evaluation"] is not None,
        "--evaluation-domain": given["evaluation_domain"] is not None,
        "--estimator unbiased": given["estimator"] != "biased",
        "--exact": given["exact"],
        "--permutations": given["permutations"] > 0,
        "--witness": given["witness"] is not None,
        "--near-duplicates": given["near_duplicates"] is not None,
    }
    refuse_sharded(in_memory)
    if task.run is None and given["train"] is None:
        raise UsageError(
            "read in pieces, only the sides of a split can be compared",
            hint="give --split, or --train and --val",
        )


def measure_sharded(task: MMDRequest, engine: EngineOptions, console: Console) -> MMDReport:
    """Check that this is about the sides of one split and nothing else, and measure them."""
    given = task.given
    _refuse_others(task)
    request = task.request()
    asked = given["engine"] != AUTO
    why = "a URL is read in pieces" if task.is_remote else "read in pieces: all rows do not fit memory"
    reason = f"--engine {engine.engine} was asked for" if asked else why
    rows = open_layout(request).n_rows
    with progress_bar(console, quiet=given["quiet"], time_left=True, rows=rows) as progress:
        shown = PlanShown(progress, console)
        with opened_engine(request, task.checked, ChosenEngine(engine, reason), shown) as opened:
            if not given["quiet"]:
                shown.announce(f"{engine.engine}: ", opened.memory, task.checked.kernel)
            report = mmd_of_split(opened.without_search(), _sides(task, rows), task.config())
    if task.run is None:
        return report
    stated = [(file["bytes"], file["sha256"]) for file in task.run.report["input"]["files"]]
    same = stated == [(file.bytes, file.sha256) for file in report.input.files]
    return replace(report, split=task.earlier_report(same_input=same))


def _sides(task: MMDRequest, n_rows: int) -> GivenSides:
    """The side of every row, from whatever the user named."""
    if task.run is None:
        train, val = task.given["train"], task.given["val"]
        return given_sides(
            read_indices(train, "train"), read_indices(val, "val"), n_rows, files_of_pair(train, val)
        )
    files = files_of_sides(task.run.directory, stated_formats(task.run.report["config"]))
    return given_sides(task.run.train, task.run.val, n_rows, files)
