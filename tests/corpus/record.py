"""Run the frozen corpus and say what every command gave: index files, reports, exit codes.

`python -m tests.corpus.record FILE` writes the record of this tree. Two trees on the same machine give equal
bytes unless behaviour changed: `git diff --no-index --stat BEFORE AFTER`, or `cmp`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.corpus.commands import COMMANDS, FOLLOW_UPS, write_inputs

OF_THE_MACHINE = {"timing", "tool", "budget", "bytes", "memory", "threads", "seconds", "elapsed", "time"}
"""Keys whose values depend on the machine or the moment, whatever they stand in."""
OF_THE_NUMBERS = {"gained"}
"""Keys whose own keys depend on the last digits of numbers: which phases gained anything."""
WITH_OUTPUT = ("split", "kfold", "baseline")
HEADLINE = (("mmd", "value"), ("objective", "psi"), ("objective", "ssq_total"))


def record(names: Iterable[str] = COMMANDS) -> dict[str, Any]:
    """Run commands, each in a folder of its own, and gather what came of them."""
    return {name: _ran(_words(COMMANDS[name])) for name in names}


def _words(command: str) -> list[str]:
    words = command.split()
    return [*words, "--out", "out"] if words[0] in WITH_OUTPUT else words


def _ran(command: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_inputs(folder)
        inputs = {entry.name for entry in folder.iterdir()}
        found = {"command": " ".join(command), **_run(command, folder)}
        found["files"] = {
            str(path.relative_to(folder)): _content(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.relative_to(folder).parts[0] not in inputs
        }
        if (folder / "out" / "report.json").exists():
            is_split = (folder / "out" / "val.npy").exists() and "--parts" not in command
            asked = [name for name in FOLLOW_UPS if is_split or name == "verify"]
            features = command[2] if command[0] == "baseline" else command[1]
            for name in asked:
                words = [features if word == "feats.parquet" else word for word in FOLLOW_UPS[name].split()]
                found[name] = _run(words, folder)
        return found


def _run(command: list[str], folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "clustersplit_cli", *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    out: Any = done.stdout
    if done.stdout.startswith("{"):
        out = _steady(json.loads(done.stdout))
    return {"exit": done.returncode, "stdout": out, "errors": done.stderr if done.returncode else ""}


def _content(path: Path) -> Any:
    """A report without what depends on the machine; of any other file a digest."""
    if path.suffix == ".json":
        return _steady(json.loads(path.read_text(encoding="utf-8")))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _steady(inner)
            for key, inner in value.items()
            if key not in OF_THE_MACHINE and not key.endswith("_per_second")
        }
    return [_steady(inner) for inner in value] if isinstance(value, list) else value


def digest(found: dict[str, Any]) -> dict[str, Any]:
    """A record cut down to what every machine gives: the last digits of numbers differ between processors."""
    return {
        name: {
            **{part: run[part]["exit"] for part in FOLLOW_UPS if part in run},
            "exit": run["exit"],
            "keys": {
                path: _keys(content)
                for path, content in {"stdout": run["stdout"], **run["files"]}.items()
                if isinstance(content, dict)
            },
            "files": {path: content for path, content in run["files"].items() if isinstance(content, str)},
            "headline": _headline(run["files"].get("out/report.json", {})),
        }
        for name, run in found.items()
    }


def _headline(report: dict[str, Any]) -> list[float]:
    return [float(report[part][key]) for part, key in HEADLINE if part in report]


def _keys(report: dict[str, Any]) -> str:
    return hashlib.sha256("\n".join(_leaves(report)).encode()).hexdigest()


def _leaves(value: Any, path: str = "") -> list[str]:
    """Where a report has values. Lists are not looked into: how long they are may differ between machines."""
    if isinstance(value, dict) and path.rpartition("/")[2] not in OF_THE_NUMBERS:
        return sorted({leaf for key in value for leaf in _leaves(value[key], f"{path}/{key}")})
    return [path]


def main() -> None:
    """Write the record of this tree to the file that is named, or with --expected what the test expects."""
    (name,) = sys.argv[1:]
    found = record()
    expected = Path(__file__).with_name("expected.json")
    path, content = (expected, digest(found)) if name == "--expected" else (Path(name), found)
    path.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
