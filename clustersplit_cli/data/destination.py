"""May this path be written? Asked before any work, so that a long run cannot end in a refusal."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from clustersplit_cli.data.readers.fingerprint import content_of
from clustersplit_cli.errors import InputError, OutputError

REPORT_NAME = "report.json"
WEIGHTS_NAME = "val_weights"
"""The files of the weights of validation rows, without their suffix."""
PAGE_NAME = "report.html"
LADDER_NAME, LADDER_PAGE = "ladder.json", "ladder.html"
"""What a directory of graded splits has besides one directory for every level."""
_LEVEL, _REPEAT = re.compile(r"level_[0-9.e-]+"), re.compile(r"repeat_[0-9]+")
_INDEX_SUFFIXES = frozenset({".npy", ".txt", ".csv", ".parquet"})
_SIDES = frozenset({"train", "val"})
_FOLD = re.compile(r"fold_[0-9]+")
INPUT_FOLDER = "input"
"""Holds the rows of a run that were not in files."""
_INPUT_FILE = re.compile(r"(features|rows)\.(npy|parquet)|force_(train|val)\.npy")

CAUSES = {
    errno.ENOSPC: ("no space left on the device", "free some space, or write to another disk"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or write to another disk"),
    errno.EFBIG: ("the file would exceed the file-size limit", "raise the limit (ulimit -f)"),
    errno.EACCES: ("permission denied", "choose a place you may write to"),
    errno.EPERM: ("permission denied", "choose a place you may write to"),
    errno.EROFS: ("the file system is read-only", "choose a place you may write to"),
    errno.ENAMETOOLONG: ("the name is too long", "choose a shorter name (most systems allow 255 bytes)"),
    errno.ELOOP: ("symbolic links lead to each other", "name a place that is no link"),
    errno.EBUSY: ("it is in use as a mount point", "choose a directory inside it"),
    errno.EXDEV: ("it is in use as a mount point", "choose a directory inside it"),
}


@dataclass(frozen=True)
class Destination:
    """Where the results of a run go, and the texts that go with them.

    Attributes
    ----------
    directory : None where validation rows go to standard output as text, and nothing else is written.
    report, page : the texts of `report.json`, and of `report.html` if there is to be one.
    source, annotate : the input, and where a copy of it goes that says every row's part.
    force : replace an earlier run.
    """

    directory: Path | None
    report: str
    page: str | None
    formats: tuple[str, ...]
    source: Path
    annotate: Path | None
    force: bool

    @property
    def stream(self) -> BinaryIO:
        """Standard output; what a notebook puts in its place takes no bytes, so it is asked for only here."""
        return sys.stdout.buffer


def output_error(path: Path | str, error: OSError) -> OutputError:
    """Say in one line why `path` could not be written, and what helps."""
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    cause, hint = CAUSES.get(error.errno or 0, (reason, "choose another place"))
    return OutputError(f"cannot write {path}: {cause}", hint=hint)


def resolve(path: Path) -> Path:
    """Follow symbolic links, so that what is built beside the destination shares its file system."""
    try:
        return path.resolve()
    except OSError as error:
        raise output_error(path, error) from error
    except (RuntimeError, ValueError) as error:  # a loop of links; a NUL in the name
        reason = CAUSES[errno.ELOOP][0] if isinstance(error, RuntimeError) else str(error)
        raise OutputError(f"cannot write {path}: {reason}", hint="choose another place") from error


def is_complete(directory: Path) -> bool:
    """Tell whether `directory` is a whole run.

    It is when its `report.json`, or the `ladder.json` of several runs, is a JSON object with a
    `schema_version`: the report is written last, so a directory that has one has everything else.
    """
    return any("schema_version" in _report_in(directory, name) for name in (REPORT_NAME, LADDER_NAME))


def _report_in(directory: Path, name: str = REPORT_NAME) -> dict[str, Any]:
    """The report of a run directory; empty if there is none that can be read."""
    try:
        report = json.loads(content_of(directory / name))
    except (InputError, ValueError, RecursionError):
        return {}
    return report if isinstance(report, dict) else {}


def is_vacant(path: Path) -> bool:
    """Tell whether a directory can be renamed to `path` without losing anything."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except FileNotFoundError:
        return True
    except NotADirectoryError:
        return False


def check_destination(path: Path, *, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse a directory that a run must not, or cannot, be published as.

    Call `publish.recover` first: it may bring back a result that a killed run had moved aside.

    Parameters
    ----------
    path : where the run directory is to be.
    force : replace an earlier run. Anything that is not a run of this program is refused all the same.
    inputs : the files and directories that are read; the destination may neither hold them nor lie in them.

    Raises
    ------
    OutputError
        Saying what is in the way, with the cure as its hint.
    """
    destination = resolve(path)
    _refuse_overlap(path, destination, inputs)
    _refuse_unwritable_parent(path, destination)
    try:
        refuse_occupied(path, destination, force=force)
    except OSError as error:
        raise output_error(path, error) from error


def check_file_destination(path: Path, *, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse a file that must not, or cannot, be written; parameters as in `check_destination`."""
    destination = resolve(path)
    _refuse_overlap(path, destination, inputs)
    _refuse_unwritable_parent(path, destination)
    try:
        exists = os.path.lexists(destination)
        if destination.is_dir():
            raise OutputError(f"{path} is a directory", hint="name a file")
        if exists and not destination.is_file():  # renaming over a device or a pipe would destroy it
            raise OutputError(f"{path} is not a regular file", hint="choose another name")
    except OSError as error:
        raise output_error(path, error) from error
    if exists and not force:
        raise OutputError(f"{path} exists already", hint="--force replaces it; or choose another name")


def refuse_occupied(path: Path, destination: Path, *, force: bool) -> None:
    """Refuse whatever is at `destination` unless it is nothing, empty, or a run that may be replaced."""
    while True:
        seen = _identity(destination)
        try:
            return _refuse_occupied(path, destination, force=force)
        except (OutputError, FileNotFoundError):
            if seen is not None and _identity(destination) == seen:
                raise
            # Another run replaced it while we looked, so we saw parts of two things: look again.


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_ctime_ns


def _refuse_occupied(path: Path, destination: Path, *, force: bool) -> None:
    if is_vacant(destination):
        if destination.is_mount():
            raise OutputError(
                f"{path} is a mount point", hint=f"choose a directory inside it: {path / 'split'}"
            )
        return
    elsewhere = "choose another --out"
    if not destination.is_dir():
        raise OutputError(f"{path} is a file", hint=elsewhere)
    if not is_complete(destination):
        raise OutputError(f"{path} is not empty and is not an earlier run", hint=elsewhere)
    if not force:
        raise OutputError(f"{path} exists already", hint=f"--force replaces it; or {elsewhere}")
    if strangers := _strangers(destination):
        names = ", ".join(strangers[:3]) + (", ..." if len(strangers) > 3 else "")
        raise OutputError(
            f"{path} holds things that no run wrote: {names}", hint=f"move them away, or {elsewhere}"
        )


def _strangers(directory: Path) -> list[str]:
    """Names in a run directory that its run cannot have written; replacing it would delete them."""
    if _report_in(directory, LADDER_NAME):
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not (_is_ladder_file(entry) or _is_level(entry)))
    stems = _SIDES | _part_names(_report_in(directory)) | {"folds", WEIGHTS_NAME}
    with os.scandir(directory) as entries:
        return sorted(
            entry.name
            for entry in entries
            if not (_is_index_file(entry, stems) or _is_report(entry) or _is_run_folder(entry))
        )


def _is_ladder_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.name in (LADDER_NAME, LADDER_PAGE)


def _is_level(entry: os.DirEntry[str]) -> bool:
    """Whether this is the directory of one level, with whole runs and nothing else in it."""
    if not _LEVEL.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
        return False
    with os.scandir(entry.path) as inside:
        return all(
            _REPEAT.fullmatch(run.name)
            and run.is_dir(follow_symlinks=False)
            and is_complete(Path(run.path))
            and not _strangers(Path(run.path))
            for run in inside
        )


def _part_names(report: Mapping[str, Any]) -> frozenset[str]:
    """The parts that a report tells of."""
    try:
        return frozenset(str(part["name"]) for part in report["parts"]["parts"])
    except (KeyError, TypeError):
        return frozenset()


def _is_index_file(entry: os.DirEntry[str], stems: Collection[str]) -> bool:
    """Whether this is a file of row numbers, or ids, of one of the parts."""
    name = Path(entry.name)
    is_known = name.stem in stems or name.stem.removesuffix("_ids") in stems
    return entry.is_file(follow_symlinks=False) and is_known and name.suffix in _INDEX_SUFFIXES


def _is_report(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) and entry.name in (REPORT_NAME, PAGE_NAME, "split.json")


def _is_run_folder(entry: os.DirEntry[str]) -> bool:
    """Whether this is a folder of one fold or of the input, and nothing else in it."""
    is_input = entry.name == INPUT_FOLDER
    if not (is_input or _FOLD.fullmatch(entry.name)) or not entry.is_dir(follow_symlinks=False):
        return False
    with os.scandir(entry.path) as inside:
        if is_input:
            return all(
                file.is_file(follow_symlinks=False) and _INPUT_FILE.fullmatch(file.name) for file in inside
            )
        return all(_is_index_file(file, _SIDES) for file in inside)


def _refuse_overlap(path: Path, destination: Path, inputs: Iterable[Path]) -> None:
    hint = "choose another place"
    if destination == destination.parent:
        raise OutputError(f"{path} is the root of the file system", hint=hint)
    working_directory = Path.cwd()
    if destination == working_directory or destination in working_directory.parents:
        raise OutputError(
            f"{path} is, or holds, the working directory", hint="name a new directory inside it"
        )
    for source in inputs:
        try:
            held = source.resolve()
        except (OSError, RuntimeError, ValueError):
            continue  # it leads nowhere, which its reader explains
        if destination == held or destination in held.parents:
            raise OutputError(f"{path} is, or holds, the input {source}", hint=hint)
        if held in destination.parents:
            raise OutputError(
                f"{path} lies inside the input {source}, whose next reading would include it", hint=hint
            )


def _refuse_unwritable_parent(path: Path, destination: Path) -> None:
    parent = destination.parent
    try:
        destination.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise output_error(path, error) from error
    if not parent.exists():
        raise OutputError(f"cannot write {path}: {parent} does not exist", hint=f"mkdir -p '{parent}'")
    if not parent.is_dir():
        raise OutputError(f"cannot write {path}: {parent} is not a directory", hint="choose another place")
    effective = os.access in os.supports_effective_ids
    if not os.access(parent, os.W_OK | os.X_OK, effective_ids=effective):
        raise OutputError(
            f"cannot write {path}: {parent} is not writable", hint="choose a place you may write to"
        )
