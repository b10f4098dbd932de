"""The commands: what they are called, say of themselves and take. What they do is imported when they run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from clustersplit_cli.cli.options import features_path
from clustersplit_cli.options import (
    CONSTRAINTS,
    INPUT,
    METHOD,
    OPTIONS,
    OUTPUT,
    Option,
    choice,
    flag,
    integer,
    path,
    text,
)


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes
    ----------
    help : what it does, in words.
    example : what to type.
    """

    name: str
    help: str
    example: str
    arguments: Mapping[str, Any]
    options: tuple[Option, ...]

    @property
    def summary(self) -> str:
        """The first sentence of the help, for the list of commands."""
        return self.help.partition("\n\n")[0]


def _options(*chosen: str | Option) -> tuple[Option, ...]:
    """Options in the order of the help: names of shared ones, separated by spaces, and others as they are."""
    found: list[Option] = []
    for item in chosen:
        found += [OPTIONS[name] for name in item.split()] if isinstance(item, str) else [item]
    return tuple(found)


def _argument(taken: Any, name: str, about: str, **more: Any) -> Any:
    return Annotated[taken, typer.Argument(metavar=name, help=about, show_default=False, **more)]


STRATEGIES = (
    "random",
    "greedy",
    "nearest-neighbours",
    "nearest-neighbours-total",
    "unconstrained",
    "leave-one-domain-out",
)
COMPARED, GATES = "What to compare", "Checks"
OTHERS, COMPARISON = "Splits by other tools", "Comparison"
MODELS, EVALUATION = "Models", "Evaluation"

FILES = "Parquet (file or directory), Arrow/Feather, CSV, NPY or NPZ"
FEATURES = _argument(Path, "FEATURES", f"{FILES}.", parser=features_path)
FEATURES_OR_CONFIG = _argument(
    Path | None, "FEATURES", f"{FILES}; may be left out with --config.", parser=features_path
)
COMPANIONS = "label_file domain_file metadata"
READING = f"columns label domain {COMPANIONS} id exclude drop_invalid impute distances"
READING_WITHOUT_ID = READING.replace(" id ", " ")
KERNEL = "kernel gamma degree standardize nystrom"
MACHINE = "memory threads"
_EARLIER_INPUT = path(
    "features",
    INPUT,
    "FEATURES",
    "Where the input is now.",
    default_in_words="its path in the report, from the working directory or the run's",
)
_NEAR = text(
    "near_duplicates",
    METHOD,
    "SIMILARITY",
    "Count validation rows with a training row of this cosine similarity, such as 0.95; kernel:0.95: of this "
    "similarity by the kernel.",
)
_JSON, _QUIET, _FORCE, _OUT = (OPTIONS[name] for name in ("json", "quiet", "force", "out"))

SPLIT = Command(
    "split",
    """Split a feature file into training and validation rows.

    The validation rows differ from the training rows as much as possible, measured by the maximum mean
    discrepancy, while every (label, domain) cell keeps its share h. Writes train and val index
    files and report.json. With --parts, any number of parts of any shares.
    """,
    "clustersplit split feats.parquet --h 0.2 --kernel rbf",
    {"features": FEATURES_OR_CONFIG},
    _options(
        f"{READING} target holdout parts stratify tolerance rounding label_bins keep_together",
        f"force_train force_val severity at_mmd aim weights {KERNEL} restarts effort max_iter seed solver",
        f"certify bound {MACHINE}",
        "engine passes spill scheduler",
        "out n_splits format annotate html force config json quiet verbose debug",
    ),
)
LADDER = Command(
    "ladder",
    """Split a feature file at several levels, from random splits to the hardest ones.

    Every level is a severity: 0 is an ordinary stratified random split, 1 the hardest found, and 0.5 has an
    MMD half of the way between them. Writes a directory with one for every level and repeat, each as `split
    --severity` writes it, and ladder.json with the MMD of each and, with --target, its place among them.
    """,
    "clustersplit ladder feats.parquet --levels 0,0.5,1 --repeats 3",
    {"features": FEATURES_OR_CONFIG},
    _options(
        f"{READING} target holdout stratify tolerance rounding label_bins keep_together",
        "force_train force_val",
        text(
            "levels",
            METHOD,
            "S,S,...",
            "Severities to split at.",
            default="0,0.25,0.5,0.75,1",
        ),
        integer("repeats", METHOD, "Splits per level: seeds, counted up from --seed.", default=3, least=1),
        f"{KERNEL} restarts effort max_iter seed solver certify bound {MACHINE}",
        "engine passes spill scheduler",
        _OUT.but(help="Output directory.", default_in_words="<name>_ladder"),
        "format",
        OPTIONS["html"].but(help="Also write ladder.html, a page to look at; needs jinja2 and plotly."),
        "force config json quiet verbose debug",
    ),
)
KFOLD = Command(
    "kfold",
    """Split a feature file into k folds of equal share in every cell.

    The folds differ from each other as much as possible, so that each of them in turn is a validation set
    unlike what was trained on. Writes the fold of every row, fold_0/train and fold_0/val and so on, and
    report.json. `inspect --k` shows beforehand what each fold would get.
    """,
    "clustersplit kfold feats.parquet --k 5",
    {"features": FEATURES_OR_CONFIG},
    _options(
        f"k {READING} stratify tolerance label_bins keep_together",
        f"severity at_mmd {KERNEL} restarts effort max_iter seed solver certify {MACHINE}",
        "engine passes spill scheduler",
        _OUT.but(help="Output directory.", default_in_words="<name>_folds"),
        "format annotate html force config json quiet verbose debug",
    ),
)
MMD = Command(
    "mmd",
    """Measure the maximum mean discrepancy (MMD) between groups of rows.

    One file with --split, or with --train and --val, compares the sides of a split; with --by, the groups of
    a column. Several files are compared with each other. All pairs share one kernel, whose width is resolved
    on all rows together; with --split, options not given here are those of its report.
    """,
    "clustersplit mmd feats.parquet --by domain",
    {
        "features": _argument(
            list[Path], "FEATURES", f"{FILES}; several to compare them.", parser=features_path
        )
    },
    _options(
        path("split", COMPARED, "DIR", "The sides of a run of split."),
        path("train", COMPARED, "FILE", "Training rows of any split, as NPY, text or Parquet; needs --val."),
        path("val", COMPARED, "FILE", "Its validation rows."),
        text("by", COMPARED, "COLUMN", "The groups of a column, such as domain."),
        text(
            "within",
            COMPARED,
            "COLUMNS",
            "Compare inside every cell of these columns, such as label, and average over cells.",
        ),
        path("evaluation", COMPARED, "FILE", "The unseen rows that a model will meet."),
        text("evaluation_domain", COMPARED, "NAME", "Take the rows of this domain of FEATURES for it."),
        text(
            "target",
            COMPARED,
            "FILE|domain=NAME",
            "The same in the words of `split`: --evaluation FILE, or --evaluation-domain NAME.",
        ),
        READING_WITHOUT_ID,
        choice(
            "estimator",
            METHOD,
            "`biased` is the paper's; `unbiased` is 0 on average for equal groups.",
            "biased",
            "unbiased",
            default="biased",
        ),
        "kernel gamma degree standardize",
        flag("exact", METHOD, "Never approximate, and do not use the geometry of the split's report."),
        OPTIONS["nystrom"].but(
            help="Approximate with Q landmark rows; `auto`: 2000 if the exact sums would take over a minute."
        ),
        integer(
            "permutations",
            METHOD,
            "Test every pair with B random regroupings, within cells if --within is given.",
            metavar="B",
            default=0,
            example=1000,
        ),
        _NEAR,
        OPTIONS["seed"].but(help="Of landmarks, the median width and permutations."),
        f"{MACHINE} engine spill scheduler",
        text("fail_above", GATES, "X", "Exit with 1 if an MMD is above X."),
        text("fail_below", GATES, "X", "Exit with 1 if an MMD is below X."),
        text("fail_p", GATES, "P", "Exit with 1 if a p-value is below P; needs --permutations."),
        text(
            "fail_below_random",
            GATES,
            "X",
            "Exit with 1 if an MMD is below X times the mean of random regroupings, or of the random splits "
            "in the report of --split.",
        ),
        flag(
            "fail_if_invalid",
            GATES,
            "Exit with 1 unless train and val are further apart than either is from evaluation.",
        ),
        path(
            "witness",
            OUTPUT,
            "FILE",
            "Write the witness of every row as Parquet: large where it looks like val.",
        ),
        _FORCE.but(help="Replace an earlier witness file."),
        _JSON.but(help="Print everything to stdout as JSON."),
        _QUIET.but(help="No progress and no table."),
        "debug",
    ),
)
INSPECT = Command(
    "inspect",
    """Look at a feature file before splitting it.

    Shows what the columns are used for, every cell with its quota and the cells that will be a problem, how
    much the features spread, what the kernel would look like for each width, and the memory and time that
    `split` with the same options would take. With --k or --parts it shows what every fold or part would get
    of every cell, and which cells are too small; that takes one pass without a kernel, on every --engine.
    """,
    "clustersplit inspect feats.parquet --h 0.2",
    {"features": FEATURES},
    _options(
        f"{READING} target holdout",
        OPTIONS["k"].but(default=None, example=5, help="Show what k folds would get of every cell."),
        OPTIONS["parts"].but(help="Show what named parts would get of every cell."),
        "stratify tolerance rounding label_bins keep_together force_train force_val",
        f"{KERNEL} restarts effort seed {MACHINE} engine scheduler",
        _JSON.but(help="Print the findings to stdout as JSON instead."),
        _QUIET.but(help="Show only the warnings."),
        "debug",
    ),
)
VERIFY = Command(
    "verify",
    """Check a split: recompute everything from the input and the index files.

    For a directory that `split` or `baseline` wrote, only the configuration is taken from its report, and
    whatever else the report states is computed again. For a split by another tool give the features, --train
    and --val: it must be a split of the rows, and every cell must have its share. Exits with 1 if a
    check fails.
    """,
    "clustersplit verify feats_split",
    {
        "path": _argument(
            Path,
            "PATH",
            "A directory that `split` or `baseline` wrote; with --train and --val, the features.",
        )
    },
    _options(
        _EARLIER_INPUT,
        COMPANIONS,
        OPTIONS["target"].but(metavar="FILE", help="Where the file of the target is now."),
        path("train", OTHERS, "FILE", "Training rows: NPY, text or Parquet."),
        path("val", OTHERS, "FILE", "Validation rows."),
        "columns label domain exclude drop_invalid impute",
        "holdout stratify tolerance rounding label_bins keep_together force_train force_val",
        flag("rerun", METHOD, "Also search again, and compare the split, the trace and all restarts."),
        _NEAR.but(
            help="Also fail if a validation row has a training row of this cosine similarity, such as 0.95; "
            "kernel:0.95: of this similarity by the kernel."
        ),
        f"{MACHINE} engine spill scheduler",
        _JSON.but(help="Also print the checks to stdout."),
        _QUIET.but(help="Show only checks that failed."),
        "debug",
    ),
)
BASELINE = Command(
    "baseline",
    """Split a feature file by another strategy, to compare with.

    random draws rows from every cell. greedy is k-means whose quotas are kept by assigning greedily and
    swapping (Wecker et al. 2020). nearest-neighbours takes the rows nearest to a random one from every cell,
    nearest-neighbours-total from all rows (Søgaard et al. 2021). unconstrained is kernel k-means with the
    total size only. leave-one-domain-out makes one domain the validation set. Distances are --kernel's.
    """,
    "clustersplit baseline greedy feats.parquet --h 0.2",
    {
        "strategy": _argument(
            str,
            "STRATEGY",
            ", ".join(STRATEGIES[:-1]) + f" or {STRATEGIES[-1]}.",
            autocompletion=lambda: list(STRATEGIES),
        ),
        "features": FEATURES,
    },
    _options(
        f"{READING} holdout stratify tolerance rounding",
        text(
            "leave",
            CONSTRAINTS,
            "NAME",
            "With leave-one-domain-out: the domain that becomes the validation set.",
            default_in_words="all in turn, a directory each",
        ),
        f"{KERNEL} seed {MACHINE} engine spill scheduler",
        _OUT.but(default_in_words="<name>_<strategy>"),
        "format annotate force json quiet verbose debug",
    ),
)
COMPARE = Command(
    "compare",
    """Split a feature file by every strategy and compare the results.

    cluster-rbf and cluster-linear are `split` with those kernels; the others are those of `baseline`, and
    mix-up: a random split whose validation rows are mixed in pairs. All MMDs and Psi are under one kernel,
    so they can be compared. Nothing is written; --json prints every run.
    """,
    "clustersplit compare feats.parquet --repeats 3",
    {"features": FEATURES},
    _options(
        f"{READING_WITHOUT_ID} holdout stratify tolerance rounding",
        integer("repeats", COMPARISON, "Seeds per strategy, counted up from --seed.", default=5, least=1),
        text(
            "evaluation_domain",
            COMPARISON,
            "NAME",
            "Take this domain out as E: also MMD(T,E), MMD(V,E), and whether MMD(T,V) is above both.",
        ),
        path(
            "evaluation",
            COMPARISON,
            "FILE",
            "Take E from another file with the same features instead: rows that a model will meet.",
        ),
        text(
            "classes",
            COMPARISON,
            "N,N,...",
            "Also split with so many synthetic classes of equal size instead of the cells.",
        ),
        OPTIONS["kernel"].but(help="The common kernel under which all splits are measured."),
        f"gamma degree standardize nystrom restarts effort max_iter seed {MACHINE}",
        _JSON.but(help="Also print every run to stdout."),
        _QUIET.but(help="No progress and no tables."),
        "debug",
    ),
)
EVALUATE = Command(
    "evaluate",
    """Check on your own data whether models chosen on a cluster split do better on an unseen domain.

    Every domain in turn is set aside as E. Models with hyper-parameters drawn at random are trained on the
    training side of every strategy's split of the others, chosen on its validation side by class-balanced
    accuracy, and tested on E; nothing is chosen with E in sight. Writes every trial, report.json and, with
    --html, plots. Probes need scikit-learn.
    """,
    "clustersplit evaluate feats.parquet --search 20 --repeats 3",
    {"features": FEATURES},
    _options(
        READING_WITHOUT_ID,
        choice(
            "probe",
            MODELS,
            "Models to train on the features.",
            *("logreg", "mlp", "svm", "neighbours", "forest", "mixed"),
            default_in_words="mixed: draws among all",
        ),
        integer(
            "probe_rows",
            MODELS,
            "Most rows to train a probe on, and to score it on.",
            example=1000,
            default_in_words="1000",
        ),
        text(
            "command",
            MODELS,
            "TEMPLATE",
            "Your own training instead, with {train} {val} {test} {params} {out}, and if wanted {features} "
            "{adapt} {mixup} {weights} {seed} {domain}.",
        ),
        path("space", MODELS, "TOML", "With --command: the hyper-parameters to draw."),
        Option("timeout", MODELS, "seconds", "SECONDS", "With --command: the longest a trial may take."),
        integer("search", EVALUATION, "Settings of hyper-parameters to draw.", default=20),
        integer("repeats", EVALUATION, "Repeats with other settings, splits and seeds.", default=3),
        Option(
            "evaluation_domain",
            EVALUATION,
            "texts",
            "NAME",
            "Evaluate on this domain only (repeatable).",
            default_in_words="all in turn",
        ),
        Option(
            "strategy",
            EVALUATION,
            "texts",
            "NAME,...",
            "random, cluster-linear, cluster-rbf, cluster-laplacian, and kfold- before each; :joint or "
            ":label after, for the cells; leave-one-domain-out; mix-up; target-lookalike, target-nearest and "
            "weighted, which see E without labels.",
            default_in_words="all but those of targets and some of the k-fold ones",
        ),
        integer(
            "folds",
            EVALUATION,
            "Folds of the k-fold strategies.",
            metavar="K",
            example=5,
            default_in_words="1 / h",
        ),
        choice(
            "select",
            EVALUATION,
            "Choose by the mean over validation domains, by the worst, or by the worst less its distance to "
            "the best.",
            *("mean", "worst", "worst-gap"),
            default="mean",
        ),
        flag(
            "curve",
            EVALUATION,
            "Also train on graded splits: accuracy against the MMD, read where the unseen domain is.",
        ),
        OPTIONS["target"].but(
            panel=EVALUATION,
            help="With --curve: rows without labels to estimate the accuracy on, a file or domain=NAME.",
        ),
        flag("refit", EVALUATION, "Also test chosen settings retrained on all development rows."),
        integer(
            "jobs",
            EVALUATION,
            "Trainings at a time; the result does not depend on it.",
            example=2,
            default_in_words="all cores; 1 with --command",
        ),
        "holdout rounding gamma standardize nystrom restarts",
        OPTIONS["effort"].but(default="fast"),
        f"max_iter seed {MACHINE}",
        _OUT.but(kind="path", help="Output directory.", default_in_words="<name>_evaluation"),
        flag(
            "resume",
            OUTPUT,
            "Go on with an interrupted evaluation, or extend one by more --repeats or --search.",
        ),
        "force html json quiet debug",
    ),
)
REPORT = Command(
    "report",
    """Draw an earlier run as one HTML page that works offline.

    The page shows the rows on a map, how far the sides are apart compared with random splits, whether every
    cell keeps its share, and what drives the shift. The numbers are those of the run; what is
    drawn besides is computed again from the input. Needs jinja2 and plotly.
    """,
    "clustersplit report feats_split",
    {"directory": _argument(Path, "DIR", "A directory that `split`, `kfold` or `baseline` wrote.")},
    _options(
        _EARLIER_INPUT,
        COMPANIONS,
        OPTIONS["target"].but(metavar="FILE", help="Where the file of the target is now."),
        path(
            "output",
            OUTPUT,
            "FILE",
            "Where to write the page.",
            flags=("--output", "--out", "-o"),
            default_in_words="DIR/report.html",
        ),
        _FORCE.but(help="Replace the file if it exists."),
        MACHINE,
        _QUIET.but(help="No progress."),
        "debug",
    ),
)
COMMANDS = (INSPECT, SPLIT, LADDER, KFOLD, VERIFY, MMD, BASELINE, COMPARE, EVALUATE, REPORT)
