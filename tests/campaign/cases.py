"""Cases: input files and a command line, made from a seed and a number alone."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.files import write, write_rows
from tests.campaign.options import Place, options
from tests.campaign.tables import HOSTILE, Random, make_table, one_of, pick

KIND = 1
"""Keeps the random numbers of these cases apart from those of other kinds."""
STRATEGIES = (
    "random",
    "greedy",
    "nearest-neighbours",
    "nearest-neighbours-total",
    "unconstrained",
    "leave-one-domain-out",
)
COMMANDS = [
    (0.42, "split"),
    (0.02, "ladder"),
    (0.13, "kfold"),
    (0.11, "baseline"),
    (0.1, "inspect"),
    (0.11, "mmd"),
    (0.05, "verify"),
    (0.02, "compare"),
    (0.02, "evaluate"),
    (0.01, "report"),
    (0.01, ""),
]
PUBLISHING = ("split", "kfold", "baseline")
OUT = "out of the run"
CLUSTER = "the shared cluster"
"""Stands for the address of the scheduler, which is not known before the cluster runs."""


@dataclass(frozen=True)
class Case:
    """One command line in a folder of files.

    Attributes
    ----------
    words : what follows `clustersplit`.
    features : the feature file among them.
    again : which follow-up a successful run gets besides `verify`.
    """

    words: tuple[str, ...]
    features: str
    oddity: str | None
    again: str | None

    @property
    def command(self) -> str:
        """Which command is run."""
        return self.words[0] if self.words else ""

    @property
    def uses_cluster(self) -> bool:
        """Whether it runs on the cluster that cases share."""
        return CLUSTER in self.words

    @property
    def out(self) -> str | None:
        """The directory that the run publishes, where the case chose it."""
        return OUT if OUT in self.words else None

    def dump(self, path: Path) -> None:
        """Write the case down."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Case:
        """Read what `dump` wrote."""
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return cls(**{**data, "words": tuple(data["words"])})


@cache
def option_names() -> dict[str, tuple[str, ...]]:
    """The long options of every command, as the program itself declares them."""
    from typer.main import get_command

    from clustersplit_cli.cli.app import program as whole

    program: Any = get_command(whole())
    with program.make_context("clustersplit", [], resilient_parsing=True) as context:
        return {
            name: tuple(
                max(option.opts, key=len)
                for option in command.get_params(context)
                if option.opts[0].startswith("-") and "--help" not in option.opts
            )
            for name, command in program.commands.items()
        }


def build(seed: int, number: int, folder: Path) -> Case:
    """Write the files of a case into a folder, and return it; a function of seed and number."""
    rng = np.random.default_rng([seed, KIND, number])
    table = make_table(rng)
    written = write(rng, table, folder)
    command = pick(rng, COMMANDS)
    place = Place(table, written, folder)
    if not command:
        return Case(_no_command(rng), written.path, written.oddity, None)
    words = [command]
    if command == "baseline":
        words.append(one_of(rng, STRATEGIES) if rng.random() < 0.97 else one_of(rng, ["", "rand", "all"]))
    words += options(rng, option_names()[command], place, others=words)
    words += _scheduler(rng, words)
    if command == "mmd":
        words += _other_groups(rng, place, words)
    if command == "verify":
        words += _foreign_split(rng, place, words)
    takes_side_files = "--label-file" in option_names()[command]
    words += [*(written.words if takes_side_files else ()), *_out(rng, command, words)]
    features = (
        written.path
        if rng.random() < 0.985
        else one_of(rng, ["gone.parquet", "", ".", "-", "/dev/null", "x" * 300])
    )
    words += ["--", features] if features.startswith("-") or rng.random() < 0.1 else [features]
    words = [word.replace("\0", "") for word in words]  # no system passes it on
    again = pick(
        rng, [(0.52, None), (0.2, "repeat"), (0.1, "config"), (0.1, "mmd"), (0.05, "report"), (0.03, "rerun")]
    )
    return Case(tuple(words), features, written.oddity, again)


def _no_command(rng: Random) -> tuple[str, ...]:
    if rng.random() < 0.2:
        return (one_of(rng, HOSTILE),)
    lines = ["", "--version", "--help", "-h", "splitt", "split", "--force", "split a b", "baseline random"]
    return tuple(one_of(rng, lines).split())


def _out(rng: Random, command: str, words: list[str]) -> list[str]:
    if command not in (*PUBLISHING, "ladder", "evaluate") or any(word.startswith("--out") for word in words):
        return []
    return ["--out", OUT] if rng.random() < 0.97 else []


def _scheduler(rng: Random, words: list[str]) -> list[str]:
    """The cluster that cases share, which nearly all that ask for Dask use; others start one of their own."""
    is_named = any(word.startswith("--scheduler") for word in words)
    if "dask" not in words or is_named or rng.random() < 0.04:
        return []
    # Clusters write the rows of a shard to a file of its own, unless another format is asked for.
    format_ = ["--format", "npy"] if words[0] in PUBLISHING and rng.random() < 0.6 else []
    return ["--scheduler", CLUSTER, *format_]


def _other_groups(rng: Random, place: Place, words: list[str]) -> list[str]:
    """Another file to compare with, or index files."""
    has_groups = any(word.startswith("--by") for word in words)
    if not has_groups and rng.random() < 0.6:
        return _index_files(rng, place)
    if not has_groups or rng.random() < 0.04:
        other = write(rng, make_table(rng) if rng.random() < 0.3 else place.table, place.folder, "other")
        return [f"./{other.path}"]
    return []


def _foreign_split(rng: Random, place: Place, words: list[str]) -> list[str]:
    return _index_files(rng, place) if rng.random() < 0.95 else []


def _index_files(rng: Random, place: Place) -> list[str]:
    """The two sides of some split of the table, as another tool would write them."""
    chosen = rng.random(place.table.n) < 0.3
    words = []
    for side, rows in (("train", np.flatnonzero(~chosen)), ("val", np.flatnonzero(chosen))):
        path = f"{side}{one_of(rng, ['.npy', '.txt', '.parquet'])}"
        write_rows(rng, place.folder / path, rows.astype(np.int64))
        words += [f"--{side}", path]
    return words
