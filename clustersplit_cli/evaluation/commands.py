"""The user's own training, run once for every trial."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from clustersplit_cli.data.destination import output_error
from clustersplit_cli.data.readers.fingerprint import text_of
from clustersplit_cli.environment import as_the_user_left_it
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.evaluation.rounds import Rows
from clustersplit_cli.evaluation.trials import Record, TrainingSet, Trial, make_record

REQUIRED = ("train", "val", "test", "params", "out")
OPTIONAL = ("features", "adapt", "mixup", "weights", "seed", "domain")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_GRACE = 5.0
"""Seconds between asking a command to end and ending it."""
_GRACE_OF_ALL = 0.3
"""The same where the program itself is to end."""


@dataclass(frozen=True)
class Template:
    """A command with placeholders; no shell comes between."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Template:
        """Check that every placeholder is known and none that is needed is missing."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"--command cannot be read: {error}", hint="check its quotes") from error
        found = {name for word in words for name in _PLACEHOLDER.findall(word)}
        unknown = sorted(found - {*REQUIRED, *OPTIONAL})
        if unknown:
            raise UsageError(
                f"--command has the unknown placeholder {{{unknown[0]}}}",
                hint=f"known are {_braced((*REQUIRED, *OPTIONAL))}",
            )
        absent = [name for name in REQUIRED if name not in found]
        if absent:
            raise UsageError(
                f"--command lacks {_braced(absent)}",
                hint="for example 'python train.py --train {train} --val {val} --test {test} "
                "--params {params} --out {out}'",
            )
        return cls(words)

    def asks_for(self, name: str) -> bool:
        """Whether a placeholder occurs."""
        return any(name in _PLACEHOLDER.findall(word) for word in self.words)

    def fill(self, values: Mapping[str, str]) -> list[str]:
        """Put values in the places of their names."""
        return [_PLACEHOLDER.sub(lambda found: values[found[1]], word) for word in self.words]


class CommandRunner:
    """Runs the command for every trial, `jobs` at a time; a trial that fails is put on record as such.

    Everything a trial reads, writes and says stays in the directory: `splits/<rows>/*.npy`,
    `trials/<key>/params.json`, `out.json` and `log.txt`.
    """

    def __init__(
        self,
        template: Template,
        directory: Path,
        features: Path,
        positions: Rows,
        jobs: int,
        timeout: float | None,
    ) -> None:
        """Prepare.

        Parameters
        ----------
        positions : where each row of the arena is in the input: index files count rows of the input.
        """
        self.template = template
        self.directory = directory.resolve()
        self.features = features.resolve()
        self.positions = positions
        self.jobs = jobs
        self.timeout = timeout
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, trials: Sequence[Trial]) -> Iterator[list[Record]]:
        """Yield the record of every trial when it ends."""
        source = iter(trials)
        pending: set[Future[Record]] = set()
        with ThreadPoolExecutor(self.jobs) as executor:
            try:
                pending.update(executor.submit(self._one, trial) for trial in islice(source, 2 * self.jobs))
                while pending:
                    finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                    yield [future.result() for future in finished]
                    pending.update(executor.submit(self._one, t) for t in islice(source, len(finished)))
            finally:
                for future in pending:
                    future.cancel()
                self._stop_all()

    def _one(self, trial: Trial) -> Record:
        began = time.perf_counter()
        try:
            folder = self.directory / "trials" / trial.key
            folder.mkdir(parents=True, exist_ok=True)
            out = folder / "out.json"
            out.unlink(missing_ok=True)
            params = folder / "params.json"
            params.write_text(json.dumps(trial.setting.params, indent=2) + "\n", encoding="utf-8")
            words = self.template.fill(self._values(trial, params, out))
        except OSError as error:
            raise output_error(self.directory, error) from error
        problem = self._call(words, folder / "log.txt")
        seconds = time.perf_counter() - began
        if problem is None:
            try:
                return make_record(trial, **read_metrics(out, trial), seconds=seconds)
            except ValueError as error:
                problem = str(error)
        return make_record(trial, seconds=seconds, error=problem)

    def _values(self, trial: Trial, params: Path, out: Path) -> dict[str, str]:
        training = trial.training
        rows = self._index_files(training)
        return {
            **{name: str(path) for name, path in rows.items()},
            "params": str(params),
            "out": str(out),
            "features": str(self.features),
            "seed": str(trial.setting.seed),
            "domain": training.round.domain,
        }

    def _index_files(self, training: TrainingSet) -> dict[str, Path]:
        """Write the rows of a training set, unless they are there."""
        round_ = training.round
        folder = self.directory / "splits" / f"{round_.place}-{round_.repeat}-{training.digest}"
        folder.mkdir(parents=True, exist_ok=True)
        pairs = np.empty((0, 3))
        if training.pairs is not None:
            first, second = self.positions[training.pairs.first], self.positions[training.pairs.second]
            pairs = np.column_stack([first, second, training.pairs.weights])
        arrays = {
            "train": self.positions[training.train],
            "val": self.positions[training.val],
            "test": self.positions[round_.test],
            "adapt": self.positions[round_.adapt],
            "mixup": pairs,
            "weights": np.empty(0) if training.weights is None else training.weights,
        }
        paths = {name: folder / f"{name}.npy" for name in arrays}
        with self._lock:
            for name, path in paths.items():
                # An earlier run may have had nothing to mix or to weigh.
                if not path.exists() or np.load(path, mmap_mode="r").shape != arrays[name].shape:
                    aside = path.with_suffix(".part")
                    with aside.open("wb") as file:
                        np.save(file, arrays[name])
                    aside.replace(path)
        return paths

    def _call(self, words: list[str], log: Path) -> str | None:
        """Run the command; None if it ended well, else what happened, in one line."""
        with log.open("wb") as lines:
            with self._lock:
                if self._stopped:
                    return "stopped"
                try:
                    process = subprocess.Popen(
                        words,
                        stdin=subprocess.DEVNULL,
                        stdout=lines,
                        stderr=subprocess.STDOUT,
                        env=as_the_user_left_it(),
                        start_new_session=True,  # so that what it starts ends with it
                    )
                except OSError as error:
                    return f"{words[0]} cannot be started: {error.strerror}"
                self._running.add(process)
            try:
                code = process.wait(self.timeout)
            except subprocess.TimeoutExpired:
                _end(process)
                return f"timed out after {self.timeout:g} s"
            finally:
                with self._lock:
                    self._running.discard(process)
        if code == 0:
            return None
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"ended with {how}{_last_words(log)}"

    def _stop_all(self) -> None:
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            _signal(process, signal.SIGTERM)
        until = time.monotonic() + _GRACE_OF_ALL
        for process in running:
            _end(process, max(until - time.monotonic(), 0.0))


def read_metrics(path: Path, trial: Trial) -> dict[str, Any]:
    """Read what a training wrote: `{"val": {domain: accuracy}, "test": accuracy}`.

    `val` may be one number; `mixup` is read as `val` is, where rows were to be mixed, and `weighted` is one
    number, where rows have weights. Without rows to score on, `val` and `test` are not asked for.

    Raises
    ------
    ValueError
        Saying what is wrong.
    """
    try:
        content = json.loads(text_of(path))
    except (InputError, ValueError) as error:
        if not path.exists():
            raise ValueError("it wrote no metrics to {out}") from None
        raise ValueError(f"its metrics are no JSON: {error}") from None
    if not isinstance(content, dict):
        raise ValueError("its metrics are no JSON object")
    training = trial.training
    return {
        "test": _share(content.get("test"), "test") if len(training.round.test) else None,
        "val": _by_domain(content.get("val"), "val") if len(training.val) else {},
        "mixed": _by_domain(content.get("mixup"), "mixup") if training.pairs is not None else None,
        "weighted": None if training.weights is None else _share(content.get("weighted"), "weighted"),
    }


def _by_domain(value: Any, name: str) -> dict[str, float]:
    if isinstance(value, dict) and value:
        return {str(domain): _share(score, f"{name}.{domain}") for domain, score in value.items()}
    return {"": _share(value, name)}


def _share(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"its metric {name} is {value!r}, not a number")
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise ValueError(f"its metric {name} is {value!r}, not between 0 and 1")
    return float(value)


def _end(process: subprocess.Popen[bytes], grace: float = _GRACE) -> None:
    """End a command and what it started, politely first."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        _signal(process, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(grace)
            return


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _last_words(log: Path) -> str:
    """The last line a command said."""
    with log.open("rb") as lines:
        lines.seek(0, os.SEEK_END)
        lines.seek(max(0, lines.tell() - 2000))
        said = [line.strip() for line in lines.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {said[-1][:200]}" if said else ""


def _braced(names: Sequence[str]) -> str:
    return " ".join(f"{{{name}}}" for name in names)
