"""Where the input of an earlier run is now."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.destination import INPUT_FOLDER
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.errors import InputError

_UNSAID = "the report does not say which features were read"
_COMPANIONS = ("label_file", "domain_file", "metadata", "force_train", "force_val")


def locate_inputs(
    directory: Path, report: Mapping[str, Any], request: ReadRequest, moved: Mapping[str, Path | None]
) -> ReadRequest:
    """Find the files that a report names.

    A relative path is looked for from the working directory, from the run directory, which may hold its input
    and then comes first, and from the one that holds it.

    Parameters
    ----------
    request : how to read, with companions where the report says they are.
    moved : `features`, `label_file` and so on, where the user says they are now; None: unsaid.

    Raises
    ------
    InputError
        If a file is nowhere.
    """
    found: dict[str, Path | None] = {"path": moved["features"] or stated_features(directory, report)}
    for name in _COMPANIONS:
        stated: Path | None = getattr(request, name)
        option = f"--{name.replace('_', '-')}"
        found[name] = moved.get(name) or (None if stated is None else present(directory, stated, option))
    located = replace(request, **found)  # type: ignore[arg-type]
    if located.target_file is None:
        return located
    target = moved.get("target") or present(directory, located.target_file, "--target")
    return replace(located, target=str(target))


def features_path(report: Mapping[str, Any]) -> Path:
    """The path that FEATURES was; earlier reports do not say, but name the files that were read for it."""
    if "features" in report["config"]:
        return Path(report["config"]["features"])
    paths = _files(report)
    # What comes after a URL's question mark says where its server is, for all files alike.
    query = paths[0].partition("?")[2] if as_url(Path(paths[0])) is not None else ""
    paths = [path.removesuffix(f"?{query}") if query else path for path in paths]
    try:
        parts = Path(os.path.commonpath(paths)).parts
    except ValueError:
        raise InputError(_UNSAID, hint="name them with --features") from None
    # Hive partitions are columns only if the directory that holds them is what is read.
    partition = next((place for place, part in enumerate(parts[:-1] or parts) if "=" in part), len(parts))
    whole = len(paths) == 1 and partition == len(parts)
    found = Path(paths[0]) if whole else Path(*parts[:partition])
    return Path(f"{found}?{query}") if query else found


def stated_features(directory: Path, report: Mapping[str, Any], option: str = "--features") -> Path:
    """Where the features of a report are now."""
    # A directory such as `.` is everywhere; the first file that was read from it tells which one is meant.
    return present(directory, features_path(report), option, Path(_files(report)[0]))


def _files(report: Mapping[str, Any]) -> list[str]:
    """The paths of the files that features were read from."""
    paths = [file["path"] for file in report["input"]["files"] if file["role"] == "features"]
    if not paths:
        raise InputError(_UNSAID, hint="name them with --features")
    return paths


def present(directory: Path, path: Path, option: str, file: Path | None = None) -> Path:
    """Where a path is now, from the working directory or a run's; `file`: one below it."""
    if as_url(path) is not None:
        return path
    for base in (*(directory,) * (path.parts[:1] == (INPUT_FOLDER,)), Path(), directory, directory.parent):
        if os.path.lexists(base / (file or path)) and os.path.lexists(base / path):
            return base / path
    raise InputError(f"the input {path} is not there any more", hint=f"say where it is with {option}")
