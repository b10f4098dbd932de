"""The documentation: its code runs, its output is what it says, its reference is current, its site builds."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
RUN = ("python", "console")
SHOWN_ONLY = ("text", "makefile", "yaml", "json")
"""Languages that are not programs of ours: install commands, output, other tools' files."""
FENCE = re.compile(
    r"(?:<!--\s*(?P<note>(?:needs|run first|output)\b.*?)-->\s*)?^```(?P<language>\S*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """One fenced block, and what the comment before it asks for."""

    page: str
    line: int
    language: str
    code: str
    note: str

    @property
    def needs(self) -> str | None:
        """A package that must be installed for the block to run."""
        word, _, rest = self.note.partition(":")
        return rest.strip().splitlines()[0] if word == "needs" else None

    @property
    def stand_ins(self) -> str:
        """Python that stands for what the reader has, or for what a library would load from elsewhere."""
        return "" if self.note.startswith("output") else self.note.partition("\n")[2]


def blocks(page: str) -> Iterator[Block]:
    text = (DOCS / page).read_text("utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start("code"))
        yield Block(page, line, found["language"], found["code"], (found["note"] or "").strip())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What a reader has: the sample data, and `clustersplit` and `python` of this environment."""
    shutil.copytree(ROOT / "sample_data", tmp_path / "sample_data")
    for name, module in (("clustersplit", " -m clustersplit_cli"), ("python", "")):
        script = tmp_path / "bin" / name
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{module} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def execute(script: str, folder: Path) -> str:
    """Run commands as a reader would; a failure shows what they said."""
    search_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": search_path,
    }
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands(code: str) -> str:
    """The commands of a console block, without the output that follows them."""
    lines = [line.removeprefix("$ ") for line in code.splitlines() if line.startswith("$ ")]
    assert lines, f"no command in a console block:\n{code}"
    return "\n".join(["set -euo pipefail", *lines])


def alike(shown: str, printed: str) -> bool:
    """Whether texts agree in all words, and in numbers but for what versions of libraries change."""
    if NUMBER.sub("#", shown).split() != NUMBER.sub("#", printed).split():
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    return all(math.isclose(float(a), float(b), abs_tol=0.03) for a, b in pairs)


@pytest.mark.parametrize("page", PAGES)
def test_all_code_of_a_page_runs_in_order(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list(blocks(page))
    if not any(block.language in RUN for block in found):
        pytest.skip("the page has no code of ours")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}  # python blocks of a page go on where the last one ended
    printed, skipped = "", []
    for block in found:
        if block.note == "output":
            assert alike(block.code, printed), f"{page}:{block.line}: printed is\n{printed}"
        elif block.needs is not None and importlib.util.find_spec(block.needs) is None:
            skipped.append(f"line {block.line} was not run, it needs {block.needs}")
        elif block.language == "console":
            printed = execute(commands(block.code), folder)
        elif block.language == "python":
            with redirect_stdout(StringIO()) as out:
                for code in (block.stand_ins, block.code):
                    exec(compile(code, f"docs/{page} (line {block.line})", "exec"), names)
            printed = out.getvalue()
    if skipped:
        pytest.skip("; ".join(skipped))


def test_every_block_says_what_it_is() -> None:
    """A block without a language would be neither run nor known not to be."""
    unknown = [
        f"{block.page}:{block.line} is {block.language or 'nothing'}"
        for page in PAGES
        for block in blocks(page)
        if block.language not in (*RUN, *SHOWN_ONLY)
    ]
    assert not unknown
    fences = {
        page: len(re.findall(r"^```", (DOCS / page).read_text("utf-8"), re.MULTILINE)) for page in PAGES
    }
    assert fences == {page: 2 * len(list(blocks(page))) for page in PAGES}


def test_the_reference_is_made_from_the_program_as_it_is() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_reference_has_every_command_and_every_key() -> None:
    from clustersplit_cli.cli.declarations import COMMANDS
    from clustersplit_cli.reports.json_report import report_schema

    cli = (DOCS / "reference" / "cli.md").read_text("utf-8")
    for command in COMMANDS:
        assert f"\n## clustersplit {command.name}\n" in cli
    keys = (DOCS / "reference" / "report-json.md").read_text("utf-8")
    for key in report_schema()["properties"]:
        assert f"\n| `{key}` |" in keys


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    """Strict: links and anchors that lead nowhere, and pages outside the navigation, are errors."""
    for package in ("mkdocs", "material", "mkdocstrings_handlers"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is missing: make docs installs it")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    api = (tmp_path / "site" / "reference" / "api.html").read_text("utf-8")
    for name in ("cluster_split", "ClusterShuffleSplit", "to_predefined_split"):
        assert name in api


ODD = (
    *(
        "cannot be told from",
        "part a file",
        "split is at rest",
        "moods",
        "whoever of them",
        "what came out",
        "said in words",
    ),
    *("can neither accuse nor hide", "one-way doors", "at any rate", "in two rooms", "company rows have"),
)
"""Phrases that readers stumbled over; each has a plain one in its place."""


def test_no_text_has_a_phrase_that_readers_stumbled_over() -> None:
    texts = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
    for folder in ("clustersplit", "clustersplit_cli"):
        texts += [
            path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".html", ".json", ".js")
        ]
    found = [
        (path.relative_to(ROOT).as_posix(), phrase)
        for path in texts
        for phrase in ODD
        if phrase in " ".join(path.read_text("utf-8").lower().split())
    ]
    assert not found
