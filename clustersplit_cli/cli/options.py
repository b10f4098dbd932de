"""The options that commands share, each defined once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clustersplit_cli.errors import UsageError

INPUT, CONSTRAINTS, METHOD, OUTPUT = "Input", "Constraints", "Method", "Output"


def choice(flag: str, panel: str, text: str, *words: str, default: str | bool = True) -> Any:
    """An option that takes one of some words; values are checked with all other options, in one place."""
    return typer.Option(
        flag,
        rich_help_panel=panel,
        metavar="|".join(words),
        autocompletion=lambda: list(words),
        help=text,
        show_default=default,
    )


def integer(flag: str, example: int) -> Any:
    """A parser that names the option and the value; Typer's own words name neither well."""

    def parse(value: str | int) -> int:
        try:
            return int(value)
        except ValueError:
            raise UsageError(
                f"{flag} '{value}' is not an integer", hint=f"for example {flag} {example}"
            ) from None

    return parse


def _features(value: str) -> Path:
    """An empty word is most often a shell variable that is not set, and not the working directory."""
    if not value:
        raise UsageError("FEATURES is empty", hint="name a file, or . for the working directory")
    return Path(value)


Features = Annotated[
    Path,
    typer.Argument(
        metavar="FEATURES",
        parser=_features,
        help="Parquet (file or directory), Arrow/Feather, CSV, NPY or NPZ.",
        show_default=False,
    ),
]
FeatureFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FEATURES",
        parser=_features,
        help="Parquet (file or directory), Arrow/Feather, CSV, NPY or NPZ; several to compare them.",
        show_default=False,
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--columns",
        rich_help_panel=INPUT,
        metavar="GLOB",
        help="Feature columns: globs (repeatable, or separated by commas), or the name of one list column.",
        show_default="the only list column; else the largest set named <prefix><number>; else all floats",
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        rich_help_panel=INPUT,
        metavar="COLUMN",
        help="Label column; a column index for a plain 2-D NPY.",
        show_default="label",
    ),
]
Domain = Annotated[
    str | None,
    typer.Option(
        "--domain",
        rich_help_panel=INPUT,
        metavar="COLUMN",
        help="Domain column; a column index for a plain 2-D NPY.",
        show_default="domain, if there is one",
    ),
]
LabelFile = Annotated[
    Path | None,
    typer.Option("--label-file", rich_help_panel=INPUT, metavar="NPY", help="Labels, one per row."),
]
DomainFile = Annotated[
    Path | None,
    typer.Option("--domain-file", rich_help_panel=INPUT, metavar="NPY", help="Domains, one per row."),
]
Metadata = Annotated[
    Path | None,
    typer.Option(
        "--metadata",
        rich_help_panel=INPUT,
        metavar="FILE",
        help="Parquet, CSV or Feather with label, domain or other columns, one row per feature row.",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id", rich_help_panel=INPUT, metavar="COLUMN", help="Also write this column's values."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        rich_help_panel=INPUT,
        metavar="COLUMN=VALUE",
        help="Rows that go to neither side, such as a test domain; COLUMN= for no value (repeatable).",
    ),
]
DropInvalid = Annotated[
    bool,
    typer.Option(
        "--drop-invalid", rich_help_panel=INPUT, help="Leave out rows with NaN or infinite features."
    ),
]
Holdout = Annotated[
    str,
    typer.Option(
        "--h", "--holdout", rich_help_panel=CONSTRAINTS, metavar="FRACTION", help="Share of validation rows."
    ),
]
Parts = Annotated[
    str | None,
    typer.Option(
        "--parts",
        rich_help_panel=CONSTRAINTS,
        metavar="NAME=SHARE,...",
        help="Parts to make instead of train and val, such as train=0.7,val=0.15,test=0.15.",
    ),
]
Folds = Annotated[
    int,
    typer.Option(
        "--k",
        rich_help_panel=CONSTRAINTS,
        metavar="K",
        parser=integer("--k", 5),
        help="Number of folds.",
    ),
]
Stratify = Annotated[
    list[str] | None,
    typer.Option(
        "--stratify",
        rich_help_panel=CONSTRAINTS,
        metavar="COLUMNS",
        help="Columns, separated by commas, whose combinations keep their share; `none`: only the total. "
        "Repeated: each keeps its own totals.",
        show_default="label,domain if there is a domain, else label",
    ),
]
Tolerance = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        rich_help_panel=CONSTRAINTS,
        metavar="FRACTION",
        help="Let every cell's share vary by this fraction of h; `auto`: the smallest that can be met; "
        "COLUMN=VALUE=FRACTION: for those cells (repeatable).",
        show_default="0",
    ),
]
Rounding = Annotated[
    str | None,
    choice(
        "--rounding",
        CONSTRAINTS,
        "`nearest` rounds every cell by itself; `balanced` makes the total exactly h.",
        "nearest",
        "balanced",
        default="nearest; balanced for several families",
    ),
]
LabelBins = Annotated[
    int | None,
    typer.Option(
        "--label-bins",
        rich_help_panel=CONSTRAINTS,
        metavar="N",
        parser=integer("--label-bins", 5),
        help="Cut a label of numbers into N bins of about equal size.",
    ),
]
KeepTogether = Annotated[
    str | None,
    typer.Option(
        "--keep-together",
        rich_help_panel=CONSTRAINTS,
        metavar="COLUMN",
        help="Rows with the same value go to the same side; `exact-duplicates`: rows with the same features.",
    ),
]
ForceTrain = Annotated[
    Path | None,
    typer.Option(
        "--force-train",
        rich_help_panel=CONSTRAINTS,
        metavar="FILE",
        help="Rows that must go into training: positions, or with --id ids.",
    ),
]
ForceVal = Annotated[
    Path | None,
    typer.Option(
        "--force-val", rich_help_panel=CONSTRAINTS, metavar="FILE", help="Rows that must go into validation."
    ),
]
Kernel = Annotated[
    str,
    choice("--kernel", METHOD, "How rows are compared.", "rbf", "linear", "cosine", "polynomial"),
]
Gamma = Annotated[
    str | None,
    typer.Option(
        "--gamma",
        rich_help_panel=METHOD,
        metavar="WIDTH",
        help="Kernel width: a number, `scale` (1 / total variance), `1/d`, or `median`.",
        show_default="scale",
    ),
]
Degree = Annotated[
    int | None,
    typer.Option(
        "--degree",
        rich_help_panel=METHOD,
        metavar="N",
        parser=integer("--degree", 3),
        help="Degree of the polynomial kernel.",
        show_default="3",
    ),
]
Standardize = Annotated[
    str,
    choice(
        "--standardize",
        METHOD,
        "Scale columns to unit variance, or rows to unit length, first.",
        "none",
        "zscore",
        "l2",
    ),
]
Nystrom = Annotated[
    str,
    typer.Option(
        "--nystrom",
        rich_help_panel=METHOD,
        metavar="auto|off|Q",
        help="Approximate the kernel with Q landmark rows; `auto`: 2000 if the exact one does not fit.",
    ),
]
Restarts = Annotated[
    int,
    typer.Option(
        "--restarts",
        rich_help_panel=METHOD,
        metavar="N",
        parser=integer("--restarts", 10),
        help="Number of starts of the search.",
    ),
]
Effort = Annotated[
    str,
    choice("--effort", METHOD, "How long to go on searching after the starts.", "fast", "normal", "thorough"),
]
MaxIter = Annotated[
    int,
    typer.Option(
        "--max-iter",
        rich_help_panel=METHOD,
        metavar="N",
        parser=integer("--max-iter", 100),
        help="Most assignment steps per descent.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        rich_help_panel=METHOD,
        metavar="N",
        parser=integer("--seed", 0),
        help="Same input, options and seed: same split.",
    ),
]
Solver = Annotated[
    str,
    choice(
        "--solver",
        METHOD,
        "`auto` solves assignment steps in closed form, `cbc` sends every one through PuLP and CBC.",
        "auto",
        "cbc",
    ),
]
Certify = Annotated[
    str,
    choice(
        "--certify",
        METHOD,
        "Prove the result a fixed point with CBC: `auto` up to 50,000 rows, beyond that by thresholds.",
        "auto",
        "always",
        "never",
    ),
]
Bound = Annotated[
    str,
    choice(
        "--bound",
        METHOD,
        "Bound the MMD of any such split; `auto`: unless many landmarks make it slower than the search.",
        "auto",
        "always",
        "never",
    ),
]
Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        rich_help_panel=METHOD,
        metavar="SIZE",
        help="Memory budget, such as 8GB.",
        show_default="60 % of the machine's",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        rich_help_panel=METHOD,
        metavar="N",
        parser=integer("--threads", 2),
        help="Worker threads; the result does not depend on them.",
        show_default="all cores",
    ),
]


def _directory(words: str, default: str) -> Any:
    return typer.Option("--out", rich_help_panel=OUTPUT, metavar="DIR", help=words, show_default=default)


Out = Annotated[
    str | None,
    _directory(
        "Output directory; `-` with --format txt writes only validation indices, to stdout.", "<name>_split"
    ),
]
FoldsOut = Annotated[str | None, _directory("Output directory.", "<name>_folds")]
Force = Annotated[
    bool, typer.Option("--force", rich_help_panel=OUTPUT, help="Replace the output of an earlier run.")
]
Format = Annotated[
    list[str] | None,
    choice(
        "--format", OUTPUT, "Format of the index files (repeatable).", "npy", "txt", "parquet", default="npy"
    ),
]
Annotate = Annotated[
    Path | None,
    typer.Option(
        "--annotate",
        rich_help_panel=OUTPUT,
        metavar="FILE",
        help="Also write the input rows with a `split` column, as Parquet.",
    ),
]
Html = Annotated[
    bool,
    typer.Option(
        "--html",
        rich_help_panel=OUTPUT,
        help="Also write report.html, a page to look at; needs clustersplit[report].",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        rich_help_panel=OUTPUT,
        metavar="REPORT",
        help="Take the options of an earlier run from its report.json; options given beside it win.",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=OUTPUT, help="Also print the report to stdout.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress and no summary.")
]
Debug = Annotated[
    bool, typer.Option("--debug", rich_help_panel=OUTPUT, help="Show the traceback of an error.")
]
