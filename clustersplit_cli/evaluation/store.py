"""The directory of an evaluation: what was asked, every finished trial, the splits; survives being killed."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.data.destination import output_error
from clustersplit_cli.data.readers.fingerprint import text_of
from clustersplit_cli.errors import InputError, OutputError, UsageError
from clustersplit_cli.evaluation.trials import Record

RUN, TRIALS, SPLITS = "run.json", "trials.jsonl", "splits"


class TrialStore:
    """Trials on disk. Lines are only ever appended; a line cut short by a kill is as if never begun."""

    def __init__(self, directory: Path, asked: Mapping[str, Any], *, resume: bool, force: bool) -> None:
        """Open the directory, or make it.

        Parameters
        ----------
        asked : what the trials depend on; another evaluation must not go on in the same directory.
        resume : go on where an earlier run of the same evaluation ended.
        force : remove an earlier evaluation.
        """
        self.directory = directory
        self.records: dict[str, Record] = {}
        self._lines: Any = None
        content = json.loads(json.dumps(asked))
        try:
            there = directory.exists() and any(directory.iterdir())
            if there:
                self._take_over(content, resume=resume, force=force)
            (directory / SPLITS).mkdir(parents=True, exist_ok=True)
            self._open()
            if not (directory / RUN).exists():
                _write_whole(directory / RUN, json.dumps(content, indent=2).encode())
        except OSError as error:
            raise output_error(directory, error) from error

    def __enter__(self) -> TrialStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        if error is not None and not self.records and not any((self.directory / SPLITS).glob("*.npz")):
            with suppress(OSError):  # nothing came of it: leave nothing behind
                _remove_evaluation(self.directory)
                self.directory.rmdir()

    def append(self, records: Iterable[Record]) -> None:
        """Put finished trials on disk."""
        try:
            for record in records:
                self.records[record.key] = record
                line = json.dumps(asdict(record), ensure_ascii=False)
                self._lines.write(line.encode("utf-8", "backslashreplace") + b"\n")
            self._lines.flush()
            os.fsync(self._lines.fileno())
        except OSError as error:
            raise output_error(self.directory / TRIALS, error) from error

    def load_arrays(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Arrays kept under a name, or None."""
        path = self.directory / SPLITS / f"{name}.npz"
        try:
            with np.load(path, allow_pickle=False) as archive:
                return dict(archive)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is damaged", hint="delete it, and --resume makes it again") from error

    def keep_arrays(self, name: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Keep arrays under a name, whole or not at all."""
        path = self.directory / SPLITS / f"{name}.npz"
        aside = path.with_suffix(".part")
        try:
            with aside.open("wb") as file:
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            aside.replace(path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise output_error(path, error) from error

    def _take_over(self, asked: Any, *, resume: bool, force: bool) -> None:
        """Decide about a directory that holds something."""
        path = self.directory
        if not (path / RUN).exists():
            raise OutputError(f"{path} holds something that is no evaluation", hint="choose another --out")
        try:
            earlier = json.loads(text_of(path / RUN))
        except ValueError as error:
            raise InputError(f"{path / RUN} is damaged", hint="choose another --out") from error
        if resume:
            changed = [key for key in asked if earlier.get(key) != asked[key]]
            if changed:
                raise UsageError(
                    f"{path} is an evaluation with another {', '.join(changed)}",
                    hint="--resume goes on with the same input and options; choose another --out for others",
                )
        elif force:
            _remove_evaluation(path)
        else:
            raise OutputError(
                f"{path} already holds an evaluation", hint="--resume goes on with it, --force replaces it"
            )

    def _open(self) -> None:
        """Open the list of trials, for this process alone, and read what it holds."""
        path = self.directory / TRIALS
        self._lines = path.open("ab+")
        try:
            fcntl.flock(self._lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lines.close()
            raise OutputError(
                f"another process is at work in {self.directory}", hint="wait for it, or choose another --out"
            ) from None
        self._lines.seek(0)
        whole = 0
        for number, line in enumerate(self._lines, start=1):
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError) as error:
                self._lines.close()
                raise InputError(
                    f"{path}, line {number} is no trial", hint="delete the line, and --resume runs it again"
                ) from error
            self.records[record.key] = record
        self._lines.truncate(whole)
        self._lines.seek(0, os.SEEK_END)


def _remove_evaluation(path: Path) -> None:
    """Remove what evaluations write, and nothing that somebody else put there."""
    import shutil

    for name in (TRIALS, "report.json", "report.html"):
        (path / name).unlink(missing_ok=True)
    for name in (SPLITS, "trials"):
        if (path / name).is_dir():
            shutil.rmtree(path / name)
    (path / RUN).unlink()  # last: until then the directory is known as an evaluation


def _write_whole(path: Path, content: bytes) -> None:
    aside = path.with_suffix(".part")
    aside.write_bytes(content)
    aside.replace(path)
