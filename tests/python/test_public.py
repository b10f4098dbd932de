"""The public package: which names it has, what they cost, and what they say of themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import clustersplit
import clustersplit_cli

PACKAGE = Path(clustersplit.__file__)


def test_the_command_package_offers_the_same_objects() -> None:
    assert clustersplit.__all__ == sorted(clustersplit.__all__) == clustersplit_cli.__all__
    for name in clustersplit.__all__:
        assert getattr(clustersplit, name) is getattr(clustersplit_cli, name), name


def test_the_package_is_thin_and_imports_nothing_but_the_command_package() -> None:
    nodes = list(ast.walk(ast.parse(PACKAGE.read_bytes())))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} == {"__future__", "typing", "clustersplit_cli"}
    assert sorted(path.name for path in PACKAGE.parent.iterdir() if path.name != "__pycache__") == [
        "__init__.py",
        "py.typed",
    ]


def test_importing_the_package_loads_as_little_as_the_command_package() -> None:
    def loaded(package: str) -> set[str]:
        probe = f"import {package}, sys; sys.stdout.write(' '.join(sys.modules))"
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    assert loaded("clustersplit") - loaded("clustersplit_cli") == {"clustersplit"}
