"""The package as others get it: what names it, what depends on it, and what comes with it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import clustersplit_cli
from clustersplit_cli.cli.declarations import COMMANDS

yaml = pytest.importorskip("yaml", reason="moto brings PyYAML: pip install '.[dev]'")
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def test_the_version_is_that_of_the_citation_and_of_the_conda_recipe() -> None:
    assert read_yaml("CITATION.cff")["version"] == clustersplit_cli.__version__
    assert read_yaml("conda/recipe.yaml")["context"]["version"] == clustersplit_cli.__version__


def test_the_project_says_who_made_it_where_to_read_and_what_it_runs_on() -> None:
    (author,) = PROJECT["authors"]
    assert author["name"] == read_yaml("CITATION.cff")["authors"][0]["name"]
    assert PROJECT["urls"]["Paper"] == read_yaml("CITATION.cff")["references"][0]["url"]
    assert PROJECT["keywords"]
    pythons = [word.rpartition(" ")[2] for word in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", word)]
    tested = read_yaml(".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["python-version"]
    assert pythons == tested
    assert PROJECT["requires-python"] == f">={tested[0]}"


def test_the_conda_recipe_needs_what_the_project_needs() -> None:
    recipe = read_yaml("conda/recipe.yaml")
    wanted = {"python >=3.10", "coin-or-cbc"}
    for requirement in PROJECT["dependencies"]:
        name, _, bounds = requirement.partition(";")[0].partition(">=")
        wanted.add(f"{name.removesuffix('[cbc]')} >={bounds.strip()}")
    assert set(recipe["requirements"]["run"]) == wanted
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert entry == f"clustersplit = {PROJECT['scripts']['clustersplit']}"


def test_the_hook_verifies_a_committed_split(tmp_path: Path) -> None:
    (hook,) = read_yaml(".pre-commit-hooks.yaml")
    program, *words = shlex.split(hook["entry"])
    assert program in PROJECT["scripts"]
    assert words[0] in {command.name for command in COMMANDS}
    shutil.copy(ROOT / "sample_data" / "gas.parquet", tmp_path)

    def clustersplit(*arguments: str) -> int:
        command = [sys.executable, "-m", "clustersplit_cli", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode

    assert clustersplit("split", "gas.parquet", "--out", "committed", "--effort", "fast") == 0
    assert clustersplit(*words, "committed") == 0
    report = tmp_path / "committed" / "report.json"
    content = json.loads(report.read_text("utf-8"))
    content["mmd"]["value"] *= 1.01
    report.write_text(json.dumps(content), encoding="utf-8")
    assert clustersplit(*words, "committed") == 1


@pytest.mark.parametrize("least", ["0.01", "5"])
def test_the_steps_of_the_action_verify_and_require_a_least_mmd(tmp_path: Path, least: str) -> None:
    steps = {step["name"]: step for step in read_yaml("action.yml")["runs"]["steps"] if "run" in step}
    shutil.copy(ROOT / "sample_data" / "gas.parquet", tmp_path)
    call = f"{shlex.quote(sys.executable)} -m clustersplit_cli"
    named = f'clustersplit() {{ {call} "$@"; }}; python() {{ {shlex.quote(sys.executable)} "$@"; }}'

    def execute(script: str) -> int:
        environment = f"SPLIT=committed FEATURES= LEAST={least}"
        return subprocess.run(
            [
                "bash",
                "-eo",
                "pipefail",
                "-c",
                f"{environment}; export SPLIT FEATURES LEAST; {named}; {script}",
            ],
            cwd=tmp_path,
            capture_output=True,
            check=False,
        ).returncode

    assert execute("clustersplit split gas.parquet --out committed --effort fast --quiet") == 0
    assert execute(steps["Verify the split"]["run"]) == 0
    assert execute(steps["Require a minimum MMD"]["run"]) == (1 if least == "5" else 0)


def test_the_release_is_published_without_a_password() -> None:
    release = read_yaml(".github/workflows/release.yml")
    publish = release["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    commands = [step["run"] for step in release["jobs"]["build"]["steps"] if "run" in step]
    assert "make package" in commands


@pytest.mark.parametrize(
    ("tag", "code"),
    [(f"v{clustersplit_cli.__version__}", 0), ("v9.9.9", 1), (clustersplit_cli.__version__, 0)],
)
def test_a_tag_that_is_not_the_version_is_not_released(tag: str, code: int) -> None:
    steps = read_yaml(".github/workflows/release.yml")["jobs"]["build"]["steps"]
    (check,) = [step["run"] for step in steps if step.get("name") == "Check that the tag is the version"]
    done = subprocess.run(
        ["bash", "-c", check], cwd=ROOT, env={"GITHUB_REF_NAME": tag, "PATH": "/usr/bin:/bin"}, check=False
    )
    assert done.returncode == code


def test_the_manual_page_has_every_command_and_no_mistake() -> None:
    page = ROOT / "docs" / "man" / "clustersplit.1"
    text = page.read_text("utf-8")
    for command in COMMANDS:
        assert f'\n.SH "{command.name.upper()}"\n' in text
    if shutil.which("groff") is None:
        pytest.skip("groff is missing: the page was not set")
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-k", str(page)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "--tolerance" in re.sub(r"\x1b\[[\d;]*m|.\x08", "", done.stdout)
