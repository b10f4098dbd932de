"""The options that only `clustersplit evaluate` has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clustersplit_cli.cli import options as opt

MODELS, EVALUATION = "Models", "Evaluation"
_PROBES = ("logreg", "mlp", "svm", "neighbours", "forest", "mixed")
Probe = Annotated[
    str | None,
    opt.choice(
        "--probe", MODELS, "Models to train on the features.", *_PROBES, default="mixed: draws among all"
    ),
]
ProbeRows = Annotated[
    int | None,
    typer.Option(
        "--probe-rows",
        rich_help_panel=MODELS,
        metavar="N",
        parser=opt.integer("--probe-rows", 1000),
        help="Most rows to train a probe on, and to score it on.",
        show_default="1000",
    ),
]
Command = Annotated[
    str | None,
    typer.Option(
        "--command",
        rich_help_panel=MODELS,
        metavar="TEMPLATE",
        help="Your own training instead, with {train} {val} {test} {params} {out}, and if wanted {features} "
        "{adapt} {mixup} {seed} {domain}.",
    ),
]
SpaceFile = Annotated[
    Path | None,
    typer.Option(
        "--space",
        rich_help_panel=MODELS,
        metavar="TOML",
        help="With --command: the hyper-parameters to draw.",
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        rich_help_panel=MODELS,
        metavar="SECONDS",
        help="With --command: the longest a trial may take.",
    ),
]
Search = Annotated[
    int,
    typer.Option(
        "--search",
        rich_help_panel=EVALUATION,
        metavar="N",
        parser=opt.integer("--search", 20),
        help="Settings of hyper-parameters to draw.",
    ),
]
Repeats = Annotated[
    int,
    typer.Option(
        "--repeats",
        rich_help_panel=EVALUATION,
        metavar="N",
        parser=opt.integer("--repeats", 3),
        help="Repeats with other settings, splits and seeds.",
    ),
]
EvaluationDomain = Annotated[
    list[str] | None,
    typer.Option(
        "--evaluation-domain",
        rich_help_panel=EVALUATION,
        metavar="NAME",
        help="Evaluate on this domain only (repeatable).",
        show_default="all in turn",
    ),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        rich_help_panel=EVALUATION,
        metavar="NAME,...",
        help="random, cluster-linear, cluster-rbf, and kfold- before each; :joint or :label after, for the "
        "cells; leave-one-domain-out; mix-up.",
        show_default="all but some of the k-fold ones",
    ),
]
FoldCount = Annotated[
    int | None,
    typer.Option(
        "--folds",
        rich_help_panel=EVALUATION,
        metavar="K",
        parser=opt.integer("--folds", 5),
        help="Folds of the k-fold strategies.",
        show_default="1 / h",
    ),
]
Select = Annotated[
    str,
    opt.choice(
        "--select",
        EVALUATION,
        "Choose by the mean over validation domains, or by the worst.",
        "mean",
        "worst",
    ),
]
Refit = Annotated[
    bool,
    typer.Option(
        "--refit",
        rich_help_panel=EVALUATION,
        help="Also test chosen settings retrained on all development rows.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        rich_help_panel=EVALUATION,
        metavar="N",
        parser=opt.integer("--jobs", 2),
        help="Trainings at a time; the result does not depend on it.",
        show_default="all cores; 1 with --command",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=opt.OUTPUT,
        help="Go on with an interrupted evaluation, or extend one by more --repeats or --search.",
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        rich_help_panel=opt.OUTPUT,
        metavar="DIR",
        help="Output directory.",
        show_default="<name>_evaluation",
    ),
]
