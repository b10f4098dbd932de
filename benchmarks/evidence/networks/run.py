"""Train the networks of the plan, one JSON line per training; a later run goes on where this one ended.

    python -m benchmarks.evidence.networks.run [--until HH:MM] [--only DATASET...] [--out DIR]

Needs clustersplit[bench] and the shared data. The same training gives the same line on the same machine type.

- `results/DATASET-ALGORITHM.jsonl`: `e` evaluation domain, `r` repeat, `s` strategy, `f` fold, `p` setting,
  `v` accuracy in each validation domain, `t` accuracy in the evaluation domain.
- `results/DATASET-splits.jsonl`: `c` cells, `n` validation rows, `mmd` between the sides.

Every strategy has a training set of its own, and so its own trainings: validation is what training left. Only
the trainings on `all` development rows serve every strategy, for each has chosen one of them.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.evidence.networks.network import FINE_TUNING, Trained
from benchmarks.evidence.networks.pictures import DATASETS, Codes, Pictures
from benchmarks.evidence.networks.strategies import (
    CELLS,
    EVERYTHING,
    LEAVE_OUT,
    Development,
    discrepancy,
    part,
)
from clustersplit_cli.evaluation.space import read_space

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SETTINGS = 8
SPLIT = ("e", "r", "s", "f", "c")
TRAINING = ("e", "r", "s", "f", "p")
CORE = ("random", "cluster-linear", "cluster-rbf", EVERYTHING)
Members = NDArray[np.bool_]


@dataclass(frozen=True)
class Stage:
    """A part of the plan: the repeats of some strategies on some datasets."""

    datasets: tuple[str, ...]
    algorithms: tuple[str, ...]
    strategies: tuple[str, ...]
    repeats: range


ALL, ALGORITHMS = tuple(DATASETS), ("dann", "coral", "erm")
PICTURES = ("rotated", "mixed")
PLAN = (
    Stage(("rotated",), ("erm",), CORE, range(1)),  # the pilot
    Stage(PICTURES, ("coral",), CORE, range(1)),
    Stage(PICTURES, ("dann",), CORE, range(1)),
    Stage(("spoken",), ("dann", "coral"), CORE, range(1)),
    Stage(("mixed", "spoken"), ("erm",), CORE, range(1)),
    Stage(ALL, ("dann", "coral"), CORE, range(1, 2)),
    Stage(ALL, ("dann", "coral"), ("leave-one-domain-out",), range(1)),
    Stage(ALL, ("dann", "coral"), ("cluster-rbf-1", "cluster-linear:raw"), range(1)),
    Stage(ALL, ALGORITHMS, CORE, range(2, 20)),
)
"""In the order of importance; a run goes as far as its time."""


def seed_of(*words: object) -> int:
    """A seed for a purpose, the same on every machine."""
    return zlib.crc32(" ".join(map(str, words)).encode())


@dataclass
class Round:
    """One evaluation domain and repeat of a dataset: its rows, its fine-tuned features, its splits."""

    dataset: str
    pictures: Pictures
    place: int
    repeat: int
    _features: NDArray[np.float32] | None = field(default=None, repr=False)
    _splits: dict[tuple[str, str], list[Members]] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The name of the evaluation domain."""
        return self.pictures.names[self.place]

    @property
    def development(self) -> Development:
        """All rows of the other domains."""
        rows = np.flatnonzero(self.pictures.domains != self.place)
        features = {
            "tuned": self.tuned,
            "raw": lambda: self.pictures.pixels[rows].reshape(len(rows), -1).astype(np.float64),
        }
        return Development(rows, self.pictures.labels[rows], self.pictures.domains[rows], features)

    def tuned(self) -> NDArray[np.float32]:
        """Features of a network trained on all development rows."""
        if self._features is None:
            rows = np.flatnonzero(self.pictures.domains != self.place)
            seed = seed_of("features", self.dataset, self.name, self.repeat)
            self._features = Trained(self.pictures, rows, rows[:0], FINE_TUNING, seed).features(rows)
        return self._features

    def splits(self, strategy: str, cells: str) -> list[Members]:
        """Validation members of every fold."""
        key = (strategy, cells)
        if key not in self._splits:
            seed = seed_of("split", self.dataset, self.name, self.repeat)
            self._splits[key] = part(strategy, cells, self.development, seed)
        return self._splits[key]

    def ends(self, algorithm: str) -> tuple[Codes, Codes]:
        """Rows to test on, and rows to adapt to: half of the evaluation domain where that is used."""
        rows = np.flatnonzero(self.pictures.domains == self.place)
        if algorithm != "dann":
            return rows, rows[:0]
        rng = np.random.default_rng(seed_of("adapt", self.dataset, self.name, self.repeat))
        shuffled = rng.permutation(rows)
        order = np.argsort(self.pictures.labels[shuffled], kind="stable")
        return np.sort(shuffled[order][::2]), np.sort(shuffled[order][1::2])

    def settings(self, algorithm: str) -> list[dict[str, Any]]:
        """Hyper-parameters, the same for all strategies of the round."""
        rng = np.random.default_rng(seed_of("settings", self.dataset, algorithm, self.name, self.repeat))
        space = read_space(HERE / f"{algorithm}.toml")
        return [dict(space.draw(rng)) for _ in range(SETTINGS)]

    def train(self, algorithm: str, members: Members, params: dict[str, Any], seed: int) -> dict[str, Any]:
        """Accuracies of one training."""
        rows = self.development.rows
        test, adapt = self.ends(algorithm)
        trained = Trained(self.pictures, rows[~members], adapt, params, seed)
        places = [code for code in range(len(self.pictures.names)) if code != self.place]
        (accuracy,) = trained.accuracies(test, [self.place])
        return {"v": trained.accuracies(rows[members], places) if members.any() else None, "t": accuracy}


class Lines:
    """A file of JSON lines by key; a line that was cut off when a run ended is dropped."""

    def __init__(self, path: Path, names: tuple[str, ...]) -> None:
        self.path, self.names = path, names
        self.found: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path.exists():
            text = path.read_text("utf-8")
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole, encoding="utf-8")
            for line in map(json.loads, whole.splitlines()):
                self.found[tuple(line[name] for name in names)] = line

    def __contains__(self, key: tuple[Any, ...]) -> bool:
        return key in self.found

    def add(self, key: tuple[Any, ...], values: dict[str, Any]) -> None:
        """Append a line."""
        line = dict(zip(self.names, key, strict=True)) | values
        self.found[key] = line
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


class Campaign:
    """Works through a plan, as far as the time goes."""

    def __init__(self, out: Path, datasets: Mapping[str, Pictures], deadline: float = float("inf")) -> None:
        self.out, self.datasets, self.deadline = out, datasets, deadline
        out.mkdir(parents=True, exist_ok=True)
        self._rounds: dict[tuple[str, int, int], Round] = {}
        self._files: dict[str, Lines] = {}

    def run(self, plan: Sequence[Stage]) -> int:
        """Train what is not trained yet; return the number of trainings."""
        count = 0
        for stage in plan:
            for repeat, dataset, algorithm in product(stage.repeats, stage.datasets, stage.algorithms):
                if dataset not in self.datasets:
                    continue
                for place in range(len(self.datasets[dataset].names)):
                    for line in self._missing(dataset, algorithm, place, repeat, stage.strategies):
                        if time.time() > self.deadline:
                            return count
                        self._train(dataset, algorithm, self._round(dataset, place, repeat), line)
                        count += 1
        return count

    def _missing(
        self, dataset: str, algorithm: str, place: int, repeat: int, strategies: Sequence[str]
    ) -> list[tuple[str, int, int]]:
        """Strategy, fold and setting of what a round has no line of."""
        names = self.datasets[dataset].names
        done = self._file(f"{dataset}-{algorithm}", TRAINING)
        folds = {LEAVE_OUT: len(names) - 1}
        wanted = [
            (strategy, fold, setting)
            for strategy in strategies
            for fold in range(folds.get(strategy, 1))
            for setting in range(SETTINGS)
        ]
        return [key for key in wanted if (names[place], repeat, *key) not in done]

    def _train(self, dataset: str, algorithm: str, round_: Round, key: tuple[str, int, int]) -> None:
        strategy, fold, setting = key
        cells = CELLS[algorithm]
        members = round_.splits(strategy, cells)[fold]
        where = (round_.name, round_.repeat, strategy, fold)
        splits = self._file(f"{dataset}-splits", SPLIT)
        if members.any() and (*where, cells) not in splits:
            mmd = discrepancy(members, round_.development)
            splits.add((*where, cells), {"n": int(members.sum()), "mmd": mmd})
        # The same seed for all strategies: they differ in the rows they train on, and in nothing else.
        seed = seed_of("training", dataset, algorithm, round_.name, round_.repeat, setting)
        scores = round_.train(algorithm, members, round_.settings(algorithm)[setting], seed)
        self._file(f"{dataset}-{algorithm}", TRAINING).add((*where, setting), scores)

    def _round(self, dataset: str, place: int, repeat: int) -> Round:
        key = (dataset, place, repeat)
        if key not in self._rounds:
            self._rounds[key] = Round(dataset, self.datasets[dataset], place, repeat)
        return self._rounds[key]

    def _file(self, name: str, names: tuple[str, ...]) -> Lines:
        if name not in self._files:
            self._files[name] = Lines(self.out / f"{name}.jsonl", names)
        return self._files[name]


def main() -> int:
    """Run the plan until it is done or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--until", help="UTC time of day to stop at, HH:MM")
    parser.add_argument("--only", nargs="*", default=list(DATASETS), choices=list(DATASETS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    deadline = float("inf")
    if given.until:
        now, moment = datetime.now(timezone.utc), datetime.strptime(given.until, "%H:%M")
        end = now.replace(hour=moment.hour, minute=moment.minute, second=0)
        deadline = (end if end > now else end + timedelta(days=1)).timestamp()
    torch.set_num_threads(1)
    campaign = Campaign(given.out, {name: DATASETS[name]() for name in given.only}, deadline)
    trained = campaign.run(PLAN)
    print(f"{trained} trainings, {time.process_time():.0f} s of processor time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
