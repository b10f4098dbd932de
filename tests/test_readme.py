"""The README's commands run, and show what it says they show."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    line.removeprefix("$ ")
    for block in BLOCKS
    for line in block.splitlines()
    if line.startswith("$ clustersplit")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of the README in a shell, with `clustersplit` and `python` those of this environment."""
    python = shlex.quote(sys.executable)
    script = "\n".join(
        [
            "set -euo pipefail",
            f'clustersplit() {{ {python} -m clustersplit_cli "$@"; }}',
            f'python() {{ {python} "$@"; }}',
            "",
        ]
    )
    return subprocess.run(
        ["bash", "-c", script + command], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )


def test_every_command_of_the_readme_runs_in_order(folder: Path) -> None:
    assert len(COMMANDS) >= 5
    for command in COMMANDS:
        ran = run(command, folder)
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"


def test_the_run_shown_is_a_real_one(folder: Path) -> None:
    """All but the memory and the time of the machine at hand is as printed."""
    block = next(block for block in BLOCKS if block.startswith("$ clustersplit split"))
    command, *shown = block.splitlines()
    ran = run(command.removeprefix("$ "), folder)
    assert ran.stdout == ""

    def steady(lines: list[str]) -> list[str]:
        return [line for line in lines if not line.startswith(("kernel:", "time"))]

    assert steady(ran.stderr.splitlines()) == steady(shown)
    assert [line.split()[0] for line in ran.stderr.splitlines()] == [line.split()[0] for line in shown]


def test_every_option_in_the_readme_exists() -> None:
    shown = run("clustersplit split --help; clustersplit mmd --help; clustersplit verify --help", ROOT).stdout
    for option in sorted(set(re.findall(r"`(--[a-z-]+)`", README))):
        assert option in shown, option
    for command in re.findall(r"^\| `([a-z]+)` \|", README, re.MULTILINE):
        assert command in run("clustersplit --help", ROOT).stdout


def test_the_lines_for_python_print_what_the_comment_says(folder: Path) -> None:
    pytest.importorskip("sklearn", reason="the example needs scikit-learn's wine data")
    (block,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", block], cwd=folder, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == block.rsplit("# ", 1)[1].strip()
