"""Benchmarks are run by hand; that they still fit the code is checked here."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks import evidence, quality, speed

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = [benchmarks, evidence, quality, speed]
SCRIPTS = [
    f"{folder.__name__}.{found.name}"
    for folder in FOLDERS
    for found in pkgutil.iter_modules(folder.__path__)
    if not found.ispkg
]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_benchmark_finds_what_it_measures(name: str) -> None:
    assert importlib.import_module(name).__doc__


def test_the_profile_puts_its_clocks_around_every_part() -> None:
    words = [sys.executable, "-m", "benchmarks.speed.profile", "--rows", "3000"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 9
    assert sum(float(row.split("|")[2]) for row in rows) > 0
