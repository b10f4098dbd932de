"""Random command lines: options that are right, at the edge, and nonsense."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.campaign.files import Written, write, write_rows
from tests.campaign.tables import HOSTILE, Random, Table, make_table, one_of, pick

NONSENSE = (
    "",
    " ",
    "nan",
    "inf",
    "-inf",
    "-1",
    "0",
    "1",
    "-0.0",
    "1e999",
    "1e-400",
    "1_0",
    "0x10",
    "1e",
    "9" * 30,
    "9" * 5000,
    "0." + "3" * 400,
    "abc",
    "auto",
    "none",
    "\uff19",
    "\u0663",
    "1,5",
    "1/3",
    "a=b=c",
    "=",
    ",",
    "*",
    "[",
    "../..",
    "/",
    ".",
    "-",
    "--",
    "~",
    "/dev/null",
    "/dev/full",
    "/proc/self/mem",
    "x" * 300,
    "raw\udcff",
    "True",
    "18446744073709551616",
    "file:///etc/hostname",
    *HOSTILE[:29],
)


@dataclass(frozen=True)
class Place:
    """What options may refer to: a table, the file it is in, and the folder they are used in."""

    table: Table
    written: Written
    folder: Path

    def column(self, rng: Random) -> str:
        """A name of a column, mostly one that exists."""
        columns = list(self.table.columns)
        return (
            one_of(rng, columns) if columns and rng.random() < 0.9 else one_of(rng, ["site", "nothing", ""])
        )

    def groups(self, rng: Random) -> str:
        """A name of a column, mostly one whose values can name groups."""
        named = [column for column in self.table.columns if column not in ("age", "id")]
        return one_of(rng, named) if named and rng.random() < 0.9 else self.column(rng)

    def family(self, rng: Random) -> str:
        """Columns of cells, mostly each once."""
        more = self.groups(rng)
        usual = ["label", "label,domain", "domain", "none", more]
        return one_of(rng, [*usual, f"label,{more}"] if more != "label" or rng.random() < 0.05 else usual)

    def value(self, rng: Random) -> str:
        """COLUMN=VALUE, mostly of a row that exists."""
        column = self.groups(rng)
        values = self.table.columns.get(column) or ["x"]
        return f"{column}={one_of(rng, values)}"

    def rows(self, rng: Random) -> str:
        """A file of some row positions, or of ids."""
        n, path = self.table.n, f"rows{int(rng.integers(4))}{one_of(rng, ['.npy', '.txt', '.parquet'])}"
        count = int(rng.integers(0, max(1, n // 4) + 1))
        write_rows(rng, self.folder / path, np.sort(rng.permutation(n)[:count]).astype(np.int64))
        return path


Maker = Callable[[Random, Place], Any]


def _among(*values: object) -> Maker:
    return lambda rng, _: str(one_of(rng, values))


def _side_array(rng: Random, place: Place) -> str:
    path = f"side{int(rng.integers(3))}{one_of(rng, ['.npy', '.npy', '.txt'])}"
    off = int(rng.integers(-1, 2)) if rng.random() < 0.3 else 0
    values = rng.integers(0, 3, max(0, place.table.n + off))
    values = one_of(rng, [values, values.astype("U"), values / 2])
    if path.endswith(".txt"):
        (place.folder / path).write_text("".join(f"{value}\n" for value in values), encoding="utf-8")
    else:
        np.save(place.folder / path, values)
    return path


def _other_rows(rng: Random, place: Place) -> str:
    """A file with some of the table's rows, moved a little, or of another table."""
    table = place.table if rng.random() < 0.85 else make_table(rng)
    with np.errstate(all="ignore"):
        moved = table.features + np.asarray(one_of(rng, [0, 1]), table.features.dtype)
    rows = np.sort(rng.permutation(table.n)[: int(rng.integers(1, 40))])
    columns = {name: [values[row] for row in rows] for name, values in table.columns.items()}
    stem = f"target{int(rng.integers(10**9))}"
    return f"./{write(rng, Table(moved[rows], table.names, columns), place.folder, stem).path}"


TARGETS: list[tuple[float, Maker]] = [
    (0.4, _other_rows),
    (0.25, lambda rng, place: f"domain={one_of(rng, place.table.columns.get('domain') or ['a'])}"),
    (0.25, lambda _, place: place.written.path),
    (0.1, _among("gone.parquet", "domain=nowhere", "domain=", ".", "=")),
]


MAKERS: dict[str, Maker] = {
    "--columns": lambda rng, place: one_of(
        rng, ["f*", "features", "f0,f1", "*", "f[0-1]", "feat_*", *place.table.names[:2]]
    ),
    "--label": lambda rng, place: one_of(rng, [place.column(rng), "label", "label", "0", "-1"]),
    "--domain": lambda rng, place: one_of(rng, [place.groups(rng), "domain", "none", "none", "1"]),
    "--label-file": _side_array,
    "--domain-file": _side_array,
    "--metadata": lambda rng, place: one_of(rng, [place.written.path, "meta.parquet", "gone.csv"]),
    "--id": lambda rng, place: one_of(rng, ["id", place.column(rng)]),
    "--exclude": lambda rng, place: one_of(
        rng, [place.value(rng), place.value(rng), f"{place.column(rng)}="]
    ),
    "--impute": _among("none", "median", "median", "mean"),
    "--holdout": _among(
        0.2, 0.2, 0.5, 0.1, 0.25, 0.29, 0.333333, 0.01, 0.99, 0.75, "1e-3", "0.2000000000000000000001"
    ),
    "--parts": _among(
        "train=0.7,val=0.15,test=0.15",
        "train=0.6,val=0.2,test=0.2:random",
        "a=0.5:random,b=0.5",
        "a=0.5,b=0.5",
        "a=0.9,b=0.1",
        "a=0.3333333333,b=0.3333333333,c=0.3333333334",
        "train=0.7,val=0.2",
        "a=1,b=0",
        "a=.5,a=.5",
        "a=0.25,b=0.25,c=0.25,d=0.25",
        "train=0.8,val=0.1,test=0.1",
        "a=0.6,b=0.4",
    ),
    "--stratify": lambda rng, place: place.family(rng),
    "--tolerance": lambda rng, place: one_of(
        rng, ["0.1", "0.5", "auto", "1", "0", "2", "1e-6", f"{place.value(rng)}=0.5"]
    ),
    "--rounding": _among("nearest", "balanced"),
    "--label-bins": _among(2, 3, 5, 1, 100, 2, 4),
    "--keep-together": lambda rng, place: one_of(
        rng, ["unit", "exact-duplicates", one_of(rng, NEAR), "site", place.groups(rng)]
    ),
    "--near-duplicates": _among("0.95", "kernel:0.9", "0.5", "1", "kernel:1", "0", "2", "kernel:"),
    "--force-train": lambda rng, place: place.rows(rng),
    "--force-val": lambda rng, place: place.rows(rng),
    "--target": lambda rng, place: pick(rng, TARGETS)(rng, place),
    "--aim": _among("worst", "lookalike", "nearest", "shift", "severity"),
    "--severity": _among(0, 0.25, 0.5, 0.9, 1, "1e-9", 1.5),
    "--levels": _among("0,1", "0,0.5,1", "0.3", "1,0", "0,0", "0,2", ""),
    "--at-mmd": _among(0, 0.1, 0.3, 1, "1e9"),
    "--kernel": _among(
        "rbf", "rbf", "laplacian", "linear", "cosine", "polynomial", "tanimoto", "precomputed"
    ),
    "--gamma": _among(
        "scale", "1/d", "median", "power", 1, 0.1, 10, "1e-3", "1e12", "1e-12", "1e-300", "1e300"
    ),
    "--degree": _among(1, 2, 3, 5, 10, 100),
    "--standardize": _among("none", "zscore", "l2"),
    "--nystrom": lambda rng, place: one_of(
        rng, ["auto", "off", "1", "3", "10", str(place.table.n), str(place.table.n + 1)]
    ),
    "--restarts": _among(1, 2, 3, 5),
    "--effort": _among("fast", "fast", "normal", "thorough"),
    "--max-iter": _among(1, 2, 5, 100),
    "--seed": _among(0, 1, 2, 12345, 2**32, 2**63),
    "--solver": _among("auto", "auto", "cbc"),
    "--certify": _among("auto", "always", "never", "never"),
    "--bound": _among("auto", "always", "tight", "never", "never"),
    "--memory": _among("1GB", "100MB", "1KB", "2", "1e9", "0.5GB", "1TB", "20MB", "2GB"),
    "--threads": _among(1, 2, 3),
    "--engine": _among("auto", "local", *["stream"] * 5, *["dask"] * 2),
    "--passes": _among(1, 2, 6, 0),
    "--spill": _among("none", "spilled", ".", "gone/deep"),
    "--scheduler": _among("tcp://127.0.0.1:1", "127.0.0.1:9", "tcp://localhost:1"),
    "--out": _among("result", "deep/result", ".", "..", "work", "{}", "with space", "x" * 300, "-"),
    "--format": _among("npy", "txt", "csv", "parquet", "json"),
    "--annotate": _among(
        *["annotated.parquet", "annotated.csv", "annotated.feather"] * 2,
        "annotated",
        "result",
        "result/annotated.parquet",
        ".",
    ),
    "--config": _among("gone/report.json", "result", "feats.parquet"),
    "--n-splits": _among(2, 2, 3, 1),
    "--k": _among(2, 2, 3, 3, 4, 5, 5, 10, 1),
    "--leave": lambda rng, place: one_of(
        rng, [*map(str, place.table.columns.get("domain", [])[:3]), "nowhere"]
    ),
    "--repeats": _among(1, 1, 2),
    "--evaluation-domain": lambda rng, place: one_of(
        rng, [*map(str, place.table.columns.get("domain", [])[:3]), "nowhere"]
    ),
    "--classes": _among("2", "2,3", "1", "1000"),
    "--probe": _among("logreg", "neighbours", "svm", "forest", "mlp", "mixed"),
    "--probe-rows": _among(10, 50, 1),
    "--command": _among(
        "true {train} {val} {test} {params} {out}",
        "false {train} {val} {test} {params} {out}",
        "gone {out}",
        "true",
    ),
    "--space": _among("space.toml", "gone.toml"),
    "--timeout": _among(1, 5, 0.1),
    "--search": _among(1, 2, 2),
    "--strategy": _among(
        "random",
        "cluster-rbf",
        "cluster-laplacian",
        "random,cluster-linear",
        "kfold-random",
        "cluster-rbf:label",
        "leave-one-domain-out",
        "mix-up",
    ),
    "--folds": _among(2, 3, 5),
    "--select": _among("mean", "worst"),
    "--jobs": _among(1, 1, 2),
    "--split": _among("result", "gone"),
    "--train": lambda rng, place: place.rows(rng),
    "--val": lambda rng, place: place.rows(rng),
    "--by": lambda rng, place: one_of(rng, ["domain", "label", place.groups(rng)]),
    "--within": lambda rng, place: one_of(rng, ["label", "domain", place.groups(rng)]),
    "--evaluation": lambda rng, place: one_of(rng, [place.written.path, "gone.npy"]),
    "--estimator": _among("biased", "unbiased"),
    "--permutations": _among(0, 1, 10, 50),
    "--fail-above": _among(0, 0.1, 1e9),
    "--fail-below": _among(0, 0.1, 1e9),
    "--fail-p": _among(0.05, 0.5, 2),
    "--fail-below-random": _among(0, 1, 1e9),
    "--witness": _among("witness.parquet", "gone/witness.parquet", "."),
    "--features": lambda rng, place: one_of(rng, [place.written.path, "gone.parquet"]),
    "--output": _among("page.html", "gone/page.html", "."),
}
"""What may follow every option that takes a value."""

FLAGS = frozenset(
    {
        "--drop-invalid",
        "--weights",
        "--html",
        "--force",
        "--json",
        "--quiet",
        "--verbose",
        "--debug",
        "--exact",
        "--rerun",
    }
    | {"--fail-if-invalid", "--resume", "--refit", "--help", "--distances", "--curve"}
)

OFTEN: dict[str, float] = {
    "--holdout": 0.4,
    "--stratify": 0.35,
    "--kernel": 0.35,
    "--restarts": 0.9,
    "--effort": 0.85,
    "--engine": 0.25,
    "--k": 0.5,
    "--out": 0.02,
    "--quiet": 0.3,
    "--json": 0.2,
    "--seed": 0.2,
    "--search": 0.97,
    "--repeats": 0.97,
    "--jobs": 0.97,
    "--by": 0.5,
    "--train": 0.0,
    "--val": 0.0,
    "--split": 0.02,
    "--spill": 0.03,
    "--passes": 0.03,
    "--scheduler": 0.004,
    "--config": 0.004,
    "--metadata": 0.01,
    "--label-file": 0.01,
    "--domain-file": 0.01,
    "--exclude": 0.05,
    "--label-bins": 0.03,
    "--force-train": 0.05,
    "--force-val": 0.05,
    "--id": 0.06,
    "--parts": 0.1,
    "--at-mmd": 0.02,
    "--target": 0.08,
    "--aim": 0.5,
    "--html": 0.03,
    "--distances": 0.01,
    "--curve": 0.04,
    "--n-splits": 0.02,
    "--memory": 0.03,
    "--command": 0.05,
    "--space": 0.02,
    "--timeout": 0.02,
    "--debug": 0.0,  # shows tracebacks, as it should
    "--help": 0.001,
    "--leave": 0.02,
    "--classes": 0.03,
    "--solver": 0.08,
    "--annotate": 0.06,
    "--keep-together": 0.1,
    "--tolerance": 0.2,
    "--evaluation": 0.06,
    "--fail-above": 0.03,
    "--fail-below": 0.03,
    "--fail-p": 0.03,
    "--fail-below-random": 0.03,
    "--fail-if-invalid": 0.02,
}
NEED_ALL_ROWS = frozenset(
    {"--label-file", "--domain-file", "--metadata", "--label-bins", "--keep-together", "--id", "--html"}
    | {"--force-train", "--force-val", "--annotate", "--solver"}
)
"""What the engines that read in pieces refuse."""
REPEATABLE = frozenset({"--stratify", "--tolerance", "--exclude", "--format", "--columns"})
USUALLY = 0.1


NEAR = ("near-duplicates=0.95", "near-duplicates=kernel:0.9", "near-duplicates=1", "near-duplicates=2")

Given = list[tuple[str, str | None]]
"""Options with their values; None for a flag."""


def options(rng: Random, names: Sequence[str], place: Place, *, others: Sequence[str] = ()) -> list[str]:
    """Some of the options of a command, with values; one line in seven has an odd one.

    Parameters
    ----------
    others : words that the line has besides, such as a strategy.
    """
    odd = one_of(rng, names) if rng.random() < 0.15 else None
    crowd = pick(rng, [(0.3, 0.3), (0.5, 1.0), (0.2, 1.8)])  # how many options this line has
    given: Given = []
    for name in names:
        wanted = OFTEN.get(name, USUALLY)
        if rng.random() >= (wanted if wanted > 0.5 else wanted * crowd):
            continue
        if name in FLAGS:
            given.append((name, None))
            continue
        times = int(rng.integers(1, 4)) if name in REPEATABLE and rng.random() < 0.2 else 1
        given += [(name, str(MAKERS[name](rng, place))) for _ in range(times)]
    if rng.random() < 0.85:
        given = _sensible(_of_pairs(given, names, place.table.pairs), place, others)
    if odd is not None and odd != "--debug":
        given = [pair for pair in given if pair[0] != odd]
        given.append((odd, None if odd in FLAGS else one_of(rng, NONSENSE)))
    words: list[str] = []
    for name, value in given:
        if value is None:
            words.append(name)
        else:
            words += [f"{name}={value}"] if value.startswith("-") or rng.random() < 0.1 else [name, value]
    if rng.random() < 0.01:
        words.append(one_of(rng, ["--nothing", "-z", "--hold", "extra", "", "--h"]))
    return words


def _of_pairs(given: Given, names: Sequence[str], pairs: str | None) -> Given:
    """Say that a table holds similarities or distances where it does, and nowhere else."""
    if pairs is None:
        return [pair for pair in given if pair[0] != "--distances" and pair[1] != "precomputed"]
    features_alone = {"--standardize", "--target", "--engine", "--impute", "--columns", "--distances"}
    features_alone |= {"--kernel", "--gamma", "--nystrom"} if pairs == "similarities" else set()
    kept = [pair for pair in given if pair[0] not in features_alone]
    if pairs == "distances":
        return [*kept, ("--distances", None)] if "--distances" in names else kept
    return [*kept, ("--kernel", "precomputed")] if "--kernel" in names else kept


def _sensible(given: Given, place: Place, others: Sequence[str]) -> Given:
    """Drop what contradicts the rest, so that the run gets as far as its numbers."""
    values = dict(given)
    kernel = values.get("--kernel") or "rbf"
    columns = set(place.table.columns) if not place.written.path.endswith(".npy") else set()
    in_pieces = place.written.path.rstrip("/").endswith((".parquet", "feats"))
    drops = {
        "--config",
        "--scheduler",
        "--leave",
        "--folds",
        "--space",
        "--passes",
        "--fail-if-invalid",
        "--features",
    }
    drops |= {"--degree"} if kernel != "polynomial" else set()
    drops |= {"--spill"} if values.get("--engine") in (None, "auto", "local") else set()
    drops |= {"--aim", "--weights"} if "--target" not in values else set()
    drops |= {"--severity", "--at-mmd"} if values.get("--aim", "worst") != "worst" else set()
    drops |= {"--at-mmd"} if "--severity" in values else set()
    drops |= {"--certify"} if {"--severity", "--at-mmd"} & set(values) else set()
    drops |= {"--gamma"} if kernel in ("linear", "cosine", "tanimoto", "precomputed") else set()
    drops |= {"--engine", "--spill"} if not in_pieces else set()
    drops |= {"--holdout", "--rounding", "--bound", "--id"} if "--parts" in values else set()
    drops |= {"--verbose"} if "--quiet" in values else set()
    drops |= {"--evaluation-domain"} if "mmd" in others else set()
    drops |= NEED_ALL_ROWS if values.get("--engine") in ("stream", "dask") and in_pieces else set()
    drops -= {"--leave"} if "leave-one-domain-out" in others else set()
    kept: Given = []
    for name, value in given:
        mentioned = {
            "--label": [value],
            "--domain": [value],
            "--id": [value],
            "--by": [value],
            "--keep-together": [] if value == "exact-duplicates" or value in NEAR else [value],
            "--stratify": (value or "").replace("none", "").split(","),
            "--within": (value or "").split(","),
            "--exclude": [(value or "").split("=")[0]],
            "--columns": [] if value in ("f*", "*") else ["no column"],
        }.get(name, [])
        general_again = name == "--tolerance" and any(other == name for other, _ in kept)
        if name in drops or general_again or any(word and word not in columns for word in mentioned):
            continue
        kept.append((name, value))
    return kept
