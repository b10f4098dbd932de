"""The options: one table of what they are called and take, and the checks of those of a split.

The command line, the replay of earlier runs and the checks are made from the table; tests compare the Python
signatures with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

from clustersplit_cli.errors import UsageError
from clustersplit_cli.similarity import PRECOMPUTED

if TYPE_CHECKING:
    from clustersplit_cli.core.constraints.tolerance import Tolerance

INPUT, CONSTRAINTS, METHOD, SCALE, OUTPUT = "Input", "Constraints", "Method", "Scale", "Output"
TIGHT = "tight"
"""A bound as near as a semidefinite program gets."""
WORST, LOOKALIKE, NEAREST, SHIFT, SEVERITY = AIMS = "worst", "lookalike", "nearest", "shift", "severity"
OF_DISTANCES = "rbf", "linear", PRECOMPUTED
"""Kernels that distances are enough for."""
OF_THE_MACHINE = ("memory", "threads", "spill", "scheduler")
"""Options that say nothing about the split, only how it is worked out on this machine."""
Kind = Literal["text", "number", "integer", "seconds", "path", "flag", "texts", "numbers"]


@dataclass(frozen=True)
class Option:
    """An option of commands.

    Attributes
    ----------
    name : of the parameter, in commands and in the configuration that a report states.
    panel : the heading that it stands below in the help.
    kind : what it takes. A `number` is kept as the text it was given in; `texts` and `numbers` may be
        repeated.
    metavar : what the help calls its value.
    default_in_words : what the help says of a default that is worked out later.
    words : the values that it takes, if there are only some.
    least, most : the smallest and the largest integer that it takes.
    example : an integer that would do.
    """

    name: str
    panel: str
    kind: Kind
    metavar: str | None
    help: str
    default: Any = None
    default_in_words: str | None = None
    words: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    least: int | None = None
    most: int = 10**12
    example: int | None = None

    @property
    def flag(self) -> str:
        """How the command line spells it first."""
        return (self.flags or (f"--{self.name.replace('_', '-')}",))[0]

    @property
    def is_replayed(self) -> bool:
        """Whether a run that is made like an earlier one takes the value from there."""
        return self.name == "format" or (self.panel != OUTPUT and self.name not in OF_THE_MACHINE)

    def but(self, **changes: Any) -> Option:
        """The same option with another default, or other words about it."""
        return replace(self, **changes)


def text(name: str, panel: str, metavar: str, about: str, **more: Any) -> Option:
    """An option that takes text."""
    return Option(name, panel, "text", metavar, about, **more)


def path(name: str, panel: str, metavar: str, about: str, **more: Any) -> Option:
    """An option that takes a path."""
    return Option(name, panel, "path", metavar, about, **more)


def choice(name: str, panel: str, about: str, *words: str, **more: Any) -> Option:
    """An option that takes one of some words."""
    return Option(name, panel, "text", "|".join(words), about, words=words, **more)


def integer(name: str, panel: str, about: str, **more: Any) -> Option:
    """An option that takes an integer."""
    return Option(name, panel, "integer", more.pop("metavar", "N"), about, **more)


def flag(name: str, panel: str, about: str, **more: Any) -> Option:
    """An option that takes nothing."""
    return Option(name, panel, "flag", None, about, default=False, **more)


OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            "columns",
            INPUT,
            "texts",
            "GLOB",
            "Feature columns: globs (repeatable, or separated by commas), or the name of one list column.",
            default_in_words="the only list column; else the largest set named <prefix><number>; "
            "else all floats",
        ),
        text(
            "label",
            INPUT,
            "COLUMN",
            "Label column; a column index for a plain 2-D NPY.",
            default_in_words="label",
        ),
        text(
            "domain",
            INPUT,
            "COLUMN",
            "Domain column; a column index for a plain 2-D NPY; `none`: there are no domains.",
            default_in_words="domain, if there is one",
        ),
        path("label_file", INPUT, "FILE", "Labels: a NPY array, or text with one value a line."),
        path("domain_file", INPUT, "FILE", "Domains, in the same form."),
        path(
            "metadata",
            INPUT,
            "FILE",
            "Parquet, CSV or Feather with label, domain or other columns, one row per feature row.",
        ),
        text("id", INPUT, "COLUMN", "Also write this column's values."),
        Option(
            "exclude",
            INPUT,
            "texts",
            "COLUMN=VALUE",
            "Rows that go to neither side, such as a test domain; COLUMN= for no value (repeatable).",
        ),
        flag("drop_invalid", INPUT, "Leave out rows with NaN or infinite features."),
        flag(
            "distances",
            INPUT,
            "FEATURES holds the distances of all rows from each other, n x n, instead of features.",
        ),
        text(
            "target",
            INPUT,
            "FILE|domain=NAME",
            "Rows of where the model will be used, which need no labels: a file with the same features, or "
            "the rows of a domain, which then go to neither side.",
        ),
        choice(
            "impute",
            INPUT,
            "Take missing features for the `median` of their column, for the distances only.",
            "none",
            "median",
            default="none",
        ),
        Option(
            "holdout",
            CONSTRAINTS,
            "number",
            "FRACTION",
            "Share of validation rows.",
            flags=("--h", "--holdout"),
            default="0.2",
        ),
        text(
            "parts",
            CONSTRAINTS,
            "NAME=SHARE,...",
            "Parts to make instead of train and val, such as train=0.7,val=0.15,test=0.15; one such as "
            "test=0.15:random is drawn at random, and the others are driven apart.",
        ),
        integer(
            "n_splits",
            OUTPUT,
            "Write N different good splits, best first, into DIR/split_0, DIR/split_1 and so on.",
            least=2,
            most=1000,
            example=5,
        ),
        integer("k", CONSTRAINTS, "Number of folds.", metavar="K", default=5),
        Option(
            "stratify",
            CONSTRAINTS,
            "texts",
            "COLUMNS",
            "Columns, separated by commas, whose combinations keep their share; `none`: only the total. "
            "Repeated: each keeps its own totals.",
            default_in_words="label,domain if there is a domain, else label",
        ),
        Option(
            "tolerance",
            CONSTRAINTS,
            "numbers",
            "FRACTION",
            "Let every cell's share vary by this fraction of h; `auto`: the smallest that can be met; "
            "COLUMN=VALUE=FRACTION: for those cells (repeatable).",
            default_in_words="0",
        ),
        choice(
            "rounding",
            CONSTRAINTS,
            "`nearest` rounds every cell by itself; `balanced` makes the total exactly h.",
            "nearest",
            "balanced",
            default_in_words="nearest; balanced for several families",
        ),
        integer(
            "label_bins",
            CONSTRAINTS,
            "Cut a label of numbers into N bins of about equal size.",
            example=5,
        ),
        text(
            "keep_together",
            CONSTRAINTS,
            "COLUMN",
            "Rows with the same value go to the same side; `exact-duplicates`: rows with the same features; "
            "`near-duplicates=0.95`: rows of that cosine similarity; `near-duplicates=kernel:0.95`: of that "
            "similarity by the kernel.",
        ),
        path(
            "force_train",
            CONSTRAINTS,
            "FILE",
            "Rows that must go into training: positions, or with --id ids.",
        ),
        path("force_val", CONSTRAINTS, "FILE", "Rows that must go into validation."),
        Option(
            "severity",
            METHOD,
            "number",
            "S",
            "How hard the split is, from 0, an ordinary random one, to 1, the hardest found: its MMD is that "
            "share of the way.",
            default_in_words="1",
        ),
        Option(
            "at_mmd",
            METHOD,
            "number",
            "MMD",
            "Ask for an MMD between a random split's and the best one's instead.",
        ),
        choice(
            "kernel",
            METHOD,
            "How rows are compared; `precomputed`: FEATURES holds the similarities of all rows, n x n.",
            "rbf",
            "laplacian",
            "linear",
            "cosine",
            "polynomial",
            "tanimoto",
            PRECOMPUTED,
            default="rbf",
        ),
        Option(
            "gamma",
            METHOD,
            "number",
            "WIDTH",
            "Kernel width: a number, `scale` (1 / total variance; laplacian: 1 / total "
            "deviation), `1/d`, `median`, or `power`: what best tells domains apart, with rbf or laplacian.",
            default_in_words="scale",
        ),
        choice(
            "aim",
            METHOD,
            "What validation is to be, with --target: the hardest, like the target row by row, like it as a "
            "whole, shifted from training as the target is from all rows, or as far from training.",
            *AIMS,
            default=WORST,
        ),
        flag("weights", METHOD, "Weigh validation rows so that they stand for --target: val_weights.npy."),
        integer(
            "degree",
            METHOD,
            "Degree of the polynomial kernel.",
            least=1,
            example=3,
            default_in_words="3",
        ),
        choice(
            "standardize",
            METHOD,
            "Scale columns to unit variance, or rows to unit length, first.",
            "none",
            "zscore",
            "l2",
            default="none",
        ),
        Option(
            "nystrom",
            METHOD,
            "number",
            "auto|off|Q",
            "Approximate the kernel with Q landmark rows; `off` keeps it exact; `auto`: factors where they "
            "are proven to hold it, else exact where that fits and is quick, else 2000 landmarks.",
            default="auto",
        ),
        integer("restarts", METHOD, "Number of starts of the search.", least=1, default=10),
        choice(
            "effort",
            METHOD,
            "How long to go on searching after the starts.",
            "fast",
            "normal",
            "thorough",
            default="normal",
        ),
        integer("max_iter", METHOD, "Most assignment steps per descent.", least=1, default=100),
        integer("seed", METHOD, "Same input, options and seed: same split.", least=0, most=2**128, default=0),
        choice(
            "solver",
            METHOD,
            "`auto` solves assignment steps in closed form, `cbc` sends every one through PuLP and CBC.",
            "auto",
            "cbc",
            default="auto",
        ),
        choice(
            "certify",
            METHOD,
            "Prove the result a fixed point with CBC: `auto` up to 50,000 rows, beyond that by thresholds.",
            "auto",
            "always",
            "never",
            default="auto",
        ),
        choice(
            "bound",
            METHOD,
            "Bound the MMD of any such split; `auto`: unless many landmarks make it slower than the search; "
            "`tight`: as near as a semidefinite program gets, up to 1,000 rows or units, in minutes.",
            "auto",
            "always",
            TIGHT,
            "never",
            default="auto",
        ),
        text(
            "memory", METHOD, "SIZE", "Memory budget, such as 8GB.", default_in_words="60 % of the machine's"
        ),
        integer(
            "threads",
            METHOD,
            "Worker threads; the result does not depend on them.",
            least=1,
            example=2,
            default_in_words="all cores",
        ),
        choice(
            "engine",
            SCALE,
            "Where rows are held: `local` in memory, `stream` on disk, `dask` on a cluster; `auto`: stream "
            "if memory is too small.",
            "auto",
            "local",
            "stream",
            "dask",
            default="auto",
        ),
        integer(
            "passes",
            SCALE,
            "Most passes over all rows that refine the split, with stream and dask.",
            least=2,
            example=6,
            default_in_words="6",
        ),
        text(
            "spill",
            SCALE,
            "DIR",
            "Where stream keeps what does not fit memory; `none` computes it again on every pass.",
            default_in_words="the system's temporary directory",
        ),
        text(
            "scheduler",
            SCALE,
            "ADDRESS",
            "Dask scheduler, such as tcp://host:8786; needs --engine dask, dask and distributed.",
            default_in_words="a cluster on this machine",
        ),
        text(
            "out",
            OUTPUT,
            "DIR",
            "Output directory; `-` with --format txt writes only validation indices, to stdout.",
            flags=("--out", "-o"),
            default_in_words="<name>_split",
        ),
        Option(
            "format",
            OUTPUT,
            "texts",
            "npy|txt|csv|parquet|json",
            "Format of the index files (repeatable); json: all parts in one split.json.",
            words=("npy", "txt", "csv", "parquet", "json"),
            default_in_words="npy",
        ),
        path(
            "annotate",
            OUTPUT,
            "FILE",
            "Also write the input rows with a `split` column, as Parquet, CSV or Feather by its suffix.",
        ),
        flag("html", OUTPUT, "Also write report.html, a page to look at; needs jinja2 and plotly."),
        flag("force", OUTPUT, "Replace the output of an earlier run."),
        path(
            "config",
            OUTPUT,
            "REPORT",
            "Take the options of an earlier run from its report.json; options given beside it win.",
        ),
        flag("json", OUTPUT, "Also print the report to stdout."),
        flag("quiet", OUTPUT, "No progress and no summary.", flags=("--quiet", "-q")),
        flag(
            "verbose",
            OUTPUT,
            "Also show how the kernel is held, the objective, the certificate and the time.",
            flags=("--verbose", "-v"),
        ),
        flag("debug", OUTPUT, "Show the traceback of an error."),
    )
}
"""The options that several commands share, by name."""


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How to split. Numbers that must be exact are kept as the text they were given in.

    `gamma`, `degree`, `tolerance` and `rounding` are None where the user did not say.
    """

    holdout: str = "0.2"
    kernel: str = "rbf"
    gamma: str | None = None
    degree: int | None = None
    standardize: str = "none"
    tolerance: str | Sequence[str] | None = None
    rounding: str | None = None
    nystrom: str = "auto"
    restarts: int = 10
    effort: str = "normal"
    max_iter: int = 100
    seed: int = 0
    solver: str = "auto"
    certify: str = "auto"
    bound: str = "auto"
    severity: str | None = None
    at_mmd: str | None = None
    target: str | None = None
    distances: bool = False
    aim: str = WORST
    weights: bool = False
    memory: str | None = None
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """The same options, parsed and known to make sense together."""

    holdout: Fraction
    kernel: str
    gamma: str | float
    degree: int
    standardize: str
    tolerance: Tolerance
    rounding: str | None
    nystrom: str | int
    restarts: int
    effort: str
    max_iter: int
    seed: int
    solver: str
    certify: str
    bound: str
    budget: int
    threads: int
    severity: float = 1.0
    at_mmd: float | None = None
    aim: str = WORST
    weights: bool = False
    distances: bool = False

    @property
    def is_square(self) -> bool:
        """Whether values of all pairs of rows are given in place of features."""
        return self.distances or self.kernel == PRECOMPUTED

    @property
    def is_graded(self) -> bool:
        """Whether a split is asked for that is not as hard as can be."""
        return self.severity < 1 or self.at_mmd is not None or self.aim == SEVERITY

    @property
    def certification(self) -> str:
        """How to certify the split; a graded one is no fixed point."""
        return "never" if self.is_graded or not self.is_searched_for else self.certify

    @property
    def is_searched_for(self) -> bool:
        """Whether the split comes from the search for the hardest one, and not from another aim."""
        return self.aim in (WORST, SEVERITY)

    @property
    def is_linear(self) -> bool:
        """Whether the kernel needs no matrix of its own."""
        return self.kernel in ("linear", "cosine", PRECOMPUTED)

    @property
    def is_stationary(self) -> bool:
        """Whether the kernel depends on the difference of rows alone."""
        return self.kernel in ("rbf", "laplacian")


def check_options(options: SplitOptions) -> CheckedOptions:
    """Parse and cross-check the options.

    Raises
    ------
    UsageError
        Naming the option, its value and a value that would do.
    """
    from clustersplit_cli.core.constraints.cells import parse_holdout
    from clustersplit_cli.core.constraints.tolerance import parse_tolerances
    from clustersplit_cli.core.geometry.kernels import parse_gamma
    from clustersplit_cli.core.parallel import available_cores
    from clustersplit_cli.engines.plan import memory_budget

    given: dict[str, Any] = {field.name: getattr(options, field.name) for field in fields(options)}
    for name, value in given.items():
        if value is not None:
            check_option(OPTIONS[name], value)
    if options.gamma is not None and options.kernel in ("linear", "cosine", "tanimoto", PRECOMPUTED):
        raise UsageError(
            f"--gamma has no meaning for the {options.kernel} kernel",
            hint="drop --gamma, or use --kernel rbf",
        )
    if options.gamma == "power" and options.kernel not in ("rbf", "laplacian"):
        raise UsageError(
            f"--gamma power chooses between rbf and laplacian kernels, and --kernel is {options.kernel}",
            hint="drop --kernel, or use --gamma scale",
        )
    if options.degree is not None and options.kernel != "polynomial":
        raise UsageError(
            f"--degree has no meaning for the {options.kernel} kernel", hint="use --kernel polynomial"
        )
    if options.severity is not None and options.at_mmd is not None:
        raise UsageError("--severity and --at-mmd both say how hard the split is", hint="use one of them")
    severity, at_mmd = _parse_severity(options.severity), _parse_mmd(options.at_mmd)
    if options.certify == "always" and (severity < 1 or at_mmd is not None):
        raise UsageError(
            "--certify always cannot be combined with a graded split, which is no fixed point",
            hint="drop --certify, or --severity and --at-mmd",
        )
    _check_square(options)
    _check_aim(options)
    if options.bound == TIGHT and options.aim not in (WORST, SEVERITY):
        raise UsageError(
            f"--bound {TIGHT} bounds the hardest split, and --aim {options.aim} asks for another",
            hint=f"drop --bound, or --aim {options.aim}",
        )
    if options.aim != WORST and (severity < 1 or at_mmd is not None):
        other = "--severity" if at_mmd is None else "--at-mmd"
        raise UsageError(
            f"--aim {options.aim} and {other} both say what validation is to be", hint="use one of them"
        )
    tolerances = [options.tolerance] if isinstance(options.tolerance, str) else options.tolerance or ()
    return CheckedOptions(
        holdout=parse_holdout(options.holdout),
        kernel=options.kernel,
        gamma=parse_gamma(options.gamma or "scale"),
        degree=options.degree or 3,
        standardize=options.standardize,
        tolerance=parse_tolerances(tolerances),
        rounding=options.rounding,
        nystrom=_parse_nystrom(options.nystrom, options.kernel),
        restarts=options.restarts,
        effort=options.effort,
        max_iter=options.max_iter,
        seed=options.seed,
        solver=options.solver,
        certify=options.certify,
        bound=options.bound,
        budget=memory_budget(options.memory),
        threads=options.threads or available_cores(),
        severity=severity,
        at_mmd=at_mmd,
        aim=options.aim,
        weights=options.weights,
        distances=options.distances,
    )


def _parse_severity(text: str | None) -> float:
    """Read --severity."""
    severity = 1.0 if text is None else parse_number(text, "--severity", "0.5")
    if not 0 <= severity <= 1:
        raise UsageError(
            f"--severity must lie between 0 and 1, got {text}", hint="for example --severity 0.5"
        )
    return severity


def _parse_mmd(text: str | None) -> float | None:
    """Read --at-mmd."""
    if text is None:
        return None
    mmd = parse_number(text, "--at-mmd", "0.2")
    if not (0 <= mmd < float("inf")):
        raise UsageError(f"--at-mmd must not be negative or infinite, got {text}", hint="for example 0.2")
    return mmd


def parse_number(text: str, flag: str, example: str) -> float:
    """Read a number."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} '{text}' is not a number", hint=f"for example {flag} {example}") from None


def check_target(target: str | None) -> None:
    """Refuse a target that is none."""
    if target in ("", "domain="):
        raise UsageError(
            f"--target '{target}' names nothing",
            hint="for example --target field.parquet or --target domain=sketch",
        )


def _check_square(options: SplitOptions) -> None:
    """Refuse what needs features where values of pairs of rows are given instead."""
    if not options.distances and options.kernel != PRECOMPUTED:
        return
    given = "--distances" if options.distances else f"--kernel {PRECOMPUTED}"
    if options.kernel not in OF_DISTANCES:
        raise UsageError(
            f"--kernel {options.kernel} needs features, and {given} gives none",
            hint="use --kernel rbf or linear",
        )
    refused = {
        f"--standardize {options.standardize}": options.standardize != "none",
        f"--gamma {options.gamma}": options.gamma in ("power", "1/d"),
        "--target": options.target is not None,
    }
    for name, is_given in refused.items():
        if is_given:
            raise UsageError(f"{name} needs features, and {given} gives none", hint="drop one of them")


def _check_aim(options: SplitOptions) -> None:
    """Refuse an aim without a target, and a target that is none."""
    if options.target is None:
        idle = [f"--aim {options.aim}"] * (options.aim != WORST) + ["--weights"] * options.weights
        if idle:
            raise UsageError(
                f"{' and '.join(idle)} needs the rows of a target",
                hint="add --target FILE, or --target domain=NAME",
            )
    check_target(options.target)
    if options.aim != WORST and options.certify == "always" and options.aim != LOOKALIKE:
        raise UsageError(
            f"--certify always has no program to solve for --aim {options.aim}", hint="drop --certify"
        )


def parse_families(
    texts: Sequence[str] | None,
) -> tuple[tuple[str, ...] | None, tuple[tuple[str, ...], ...]]:
    """Read --stratify: all columns, and those of each family unless there is but one.

    All columns are None for the default, and () for the total size only.

    >>> parse_families(["label,domain"])
    (('label', 'domain'), ())
    >>> parse_families(["label", "domain"])
    (('label', 'domain'), (('label',), ('domain',)))
    """
    if not texts:
        return None, ()
    families = [() if text == "none" else tuple(word.strip() for word in text.split(",")) for text in texts]
    for text, words in zip(texts, families, strict=True):
        if "" in words or len(set(words)) < len(words):
            raise UsageError(
                f"--stratify '{text}' has an empty or repeated column",
                hint="for example --stratify label,domain",
            )
    repeated = [text for text, words in zip(texts, families, strict=True) if families.count(words) > 1]
    if repeated:
        raise UsageError(f"--stratify {repeated[0]} was given twice", hint="name every family of cells once")
    words = tuple(dict.fromkeys(word for family in families for word in family))
    return words, tuple(families) if len(families) > 1 else ()


def _parse_nystrom(text: str, kernel: str) -> str | int:
    if text in ("auto", "off"):
        return text
    if not is_count(text):
        raise UsageError(
            f"--nystrom must be auto, off or a number of landmarks of at least 1, got '{text}'",
            hint="for example --nystrom 2000",
        )
    if kernel in ("linear", "cosine", PRECOMPUTED):
        raise UsageError(
            f"--nystrom {text} has no meaning for the {kernel} kernel, which is exact at any size",
            hint="drop --nystrom",
        )
    return int(text)


def is_count(text: str) -> bool:
    """Whether a text is a number of things: digits alone, at least 1, and of a size that can occur."""
    return text.isascii() and text.isdigit() and len(text) <= 12 and int(text) >= 1


def check_option(option: Option, value: Any) -> None:
    """Refuse a word that the option does not know, and an integer below its least.

    Raises
    ------
    UsageError
    """
    if option.kind == "text" and option.words and value not in option.words:
        raise UsageError(
            f"{option.flag} '{value}' is unknown", hint=f"choose one of {', '.join(option.words)}"
        )
    if option.kind == "integer" and value > option.most:
        raise UsageError(
            f"{option.flag} must be at most {option.most}, got a number above that",
            hint=f"for example {option.flag} {option.example or option.default or max(option.least or 0, 1)}",
        )
    if option.kind == "integer" and option.least is not None and value < option.least:
        raise UsageError(
            f"{option.flag} must be at least {option.least}, got {value}",
            hint=f"for example {option.flag} {max(option.least, 1)}",
        )
