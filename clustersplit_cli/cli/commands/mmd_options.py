"""The options that only `clustersplit mmd` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersplit_cli.cli import options as opt

COMPARED, GATES = "What to compare", "Checks"

Split = Annotated[
    Path | None,
    typer.Option("--split", rich_help_panel=COMPARED, metavar="DIR", help="The sides of a run of split."),
]
Train = Annotated[
    Path | None,
    typer.Option(
        "--train",
        rich_help_panel=COMPARED,
        metavar="FILE",
        help="Training rows of any split, as NPY, text or Parquet; needs --val.",
    ),
]
Val = Annotated[
    Path | None,
    typer.Option("--val", rich_help_panel=COMPARED, metavar="FILE", help="Its validation rows."),
]
By = Annotated[
    str | None,
    typer.Option(
        "--by", rich_help_panel=COMPARED, metavar="COLUMN", help="The groups of a column, such as domain."
    ),
]
Within = Annotated[
    str | None,
    typer.Option(
        "--within",
        rich_help_panel=COMPARED,
        metavar="COLUMNS",
        help="Compare inside every cell of these columns, such as label, and average over cells.",
    ),
]
Evaluation = Annotated[
    Path | None,
    typer.Option(
        "--evaluation",
        rich_help_panel=COMPARED,
        metavar="FILE",
        help="The unseen rows that a model will meet.",
    ),
]
EvaluationDomain = Annotated[
    str | None,
    typer.Option(
        "--evaluation-domain",
        rich_help_panel=COMPARED,
        metavar="NAME",
        help="Take the rows of this domain of FEATURES for it.",
    ),
]
Estimator = Annotated[
    str,
    opt.choice(
        "--estimator",
        opt.METHOD,
        "`biased` is the paper's; `unbiased` is 0 on average for equal groups.",
        "biased",
        "unbiased",
    ),
]
Exact = Annotated[
    bool,
    typer.Option(
        "--exact",
        rich_help_panel=opt.METHOD,
        help="Never approximate, and do not use the geometry of the split's report.",
    ),
]
Nystrom = Annotated[
    str,
    typer.Option(
        "--nystrom",
        rich_help_panel=opt.METHOD,
        metavar="auto|off|Q",
        help="Approximate with Q landmark rows; `auto`: 2000 if the exact sums would take over a minute.",
    ),
]
PermutationCount = Annotated[
    int,
    typer.Option(
        "--permutations",
        rich_help_panel=opt.METHOD,
        metavar="B",
        parser=opt.integer("--permutations", 1000),
        help="Test every pair with B random regroupings, within cells if --within is given.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        rich_help_panel=opt.METHOD,
        metavar="N",
        parser=opt.integer("--seed", 0),
        help="Of landmarks, the median width and permutations.",
    ),
]
FailAbove = Annotated[
    str | None,
    typer.Option(
        "--fail-above", rich_help_panel=GATES, metavar="X", help="Exit with 1 if an MMD is above X."
    ),
]
FailBelow = Annotated[
    str | None,
    typer.Option(
        "--fail-below", rich_help_panel=GATES, metavar="X", help="Exit with 1 if an MMD is below X."
    ),
]
FailIfInvalid = Annotated[
    bool,
    typer.Option(
        "--fail-if-invalid",
        rich_help_panel=GATES,
        help="Exit with 1 unless train and val are further apart than either is from evaluation.",
    ),
]
Witness = Annotated[
    Path | None,
    typer.Option(
        "--witness",
        rich_help_panel=opt.OUTPUT,
        metavar="FILE",
        help="Write the witness of every row as Parquet: large where it looks like val.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", rich_help_panel=opt.OUTPUT, help="Replace an earlier witness file.")
]
Json = Annotated[
    bool, typer.Option("--json", rich_help_panel=opt.OUTPUT, help="Print everything to stdout as JSON.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", rich_help_panel=opt.OUTPUT, help="No progress and no table.")
]
