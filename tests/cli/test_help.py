"""Help, version, completion, and how little has to be loaded to show them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from clustersplit_cli import __version__
from clustersplit_cli.cli.app import program, run

COMMAND: Any = get_command(program())
SAMPLE = Path(__file__).resolve().parents[2] / "sample_data" / "gas.parquet"
PARAMETERS = {parameter.name: parameter for parameter in COMMAND.commands["split"].params}


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> str:
        assert run([*arguments, "--help"]) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return call


@pytest.mark.parametrize("name", sorted(COMMAND.commands))
def test_every_command_has_help_that_fits_80_columns_and_ends_with_an_example(
    name: str, help_of: Callable[..., str]
) -> None:
    text = help_of(name)
    assert max(map(len, text.splitlines())) <= 80
    assert f"  Example: clustersplit {name} " in text
    assert text.startswith(f"Usage: clustersplit {name} [OPTIONS] ")
    assert "{" not in text.splitlines()[0]


@pytest.mark.parametrize("name", sorted(PARAMETERS))
def test_every_option_is_explained(name: str, help_of: Callable[..., str]) -> None:
    parameter = PARAMETERS[name]
    assert parameter.help, name
    for flag in parameter.opts if name != "features" else ["FEATURES"]:
        assert flag in help_of("split")


def test_the_example_of_the_help_runs(help_of: Callable[..., str], split: Callable[..., Any]) -> None:
    example = help_of("split").strip().splitlines()[-1].strip()
    words = example.removeprefix("Example: clustersplit split ").split()
    assert words[0] == "feats.parquet"
    assert split(*words).code == 0


def test_the_defaults_in_the_help_are_the_defaults(help_of: Callable[..., str]) -> None:
    """Words stand where the default is worked out later; all others are the function's own."""
    in_words = {
        "columns": "the only list column",
        "label": "label",
        "domain": "domain, if there is one",
        "stratify": "label,domain if there is a domain, else label",
        "gamma": "scale",
        "degree": "3",
        "memory": "60 % of the machine's",
        "threads": "all cores",
        "out": "<name>_split",
        "format": "npy",
    }
    text = " ".join(help_of("split").split())
    for name, parameter in PARAMETERS.items():
        default = in_words.get(name, parameter.default)
        if name == "features" or default is None or default is False:
            continue
        longest = max(parameter.opts, key=len)
        entry = text[text.index(f" {longest} {parameter.metavar or ''}") :]
        assert f"[default: {default}" in entry[: entry.index("]") + 1], name


def test_options_come_in_groups(help_of: Callable[..., str]) -> None:
    headings = [line for line in help_of("split").splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Arguments:", "Input:", "Constraints:", "Method:", "Scale:", "Output:", "Help:"]


def test_no_arguments_show_the_help(capsys: pytest.CaptureFixture[str], help_of: Callable[..., str]) -> None:
    assert run([]) == 0
    assert capsys.readouterr().out == help_of()


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_has_two_names(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", flag]) == 0
    assert capsys.readouterr().out.startswith("Usage: clustersplit split")


@pytest.mark.parametrize("words", [["-h", "0.2"], ["-h0.2"], ["-h=.2"], ["-h", "20%"], ["-h", "1/5"]])
def test_a_number_after_the_short_name_of_help_is_refused(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    value = words[-1].removeprefix("-h").removeprefix("=")
    assert run(["split", "feats.parquet", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        f"error: -h shows the help and takes no value, got '{value}'",
        f"hint: the share of validation rows is --h: --h {value}",
    ]


def test_help_is_as_wide_as_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = {}
    for columns in (60, 80, 130):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["evaluate", "--help"]) == 0
        widths[columns] = max(map(len, capsys.readouterr().out.splitlines()))
    assert all(columns - 10 <= width <= columns for columns, width in widths.items())


def test_the_list_of_commands_begins_with_inspect_and_cuts_no_sentence(help_of: Callable[..., str]) -> None:
    listed = " ".join(help_of().partition("Commands:")[2].split())
    assert listed.startswith("inspect Look at a feature file before splitting it. split ")
    assert "..." not in listed
    for name, command in COMMAND.commands.items():
        assert f"{name} {command.help.partition('.')[0]}." in listed


@pytest.mark.parametrize("name", sorted(COMMAND.commands))
def test_what_writes_takes_o(name: str) -> None:
    flags = [flag for parameter in COMMAND.commands[name].params for flag in parameter.opts]
    assert (
        ("--out" in flags)
        == ("-o" in flags)
        == (name in ("split", "ladder", "kfold", "baseline", "evaluate", "report"))
    )


def test_o_names_the_output_directory(split: Callable[..., Any], files: Callable[[], set[str]]) -> None:
    assert split("feats.parquet", "-o", "here").code == 0
    assert files() == {"feats.parquet", "here"}


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"clustersplit {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["splt"], "error: no such command 'splt'. Did you mean 'split'?", "hint: see clustersplit --help"),
        (["--nope"], "error: no such option: --nope", "hint: see clustersplit --help"),
        (
            ["split"],
            "error: missing argument 'FEATURES'",
            "hint: name a file, or an earlier run with --config REPORT",
        ),
        (["inspect"], "error: missing argument 'FEATURES'", "hint: see clustersplit inspect --help"),
        (["split", ""], "error: FEATURES is empty", "hint: name a file, or . for the working directory"),
    ],
)
def test_wrong_usage_is_one_line_and_points_to_the_help(
    arguments: list[str], error: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()) == ("", [error, hint])


@pytest.mark.parametrize(
    "arguments", [["--help"], ["split", "--help"], ["--version"], ["split", "x", "--nope"]]
)
def test_help_and_wrong_usage_load_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        "import sys; from clustersplit_cli.cli.app import run; run(sys.argv[1:]); "
        "heavy = {'numpy', 'scipy', 'pyarrow', 'pulp', 'rich', 'threadpoolctl'}; "
        "print('loaded', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_a_wrong_option_is_refused_before_anything_heavy_is_loaded_for_reading(tmp_path: Any) -> None:
    probe = (
        "import sys; from clustersplit_cli.cli.app import run; run(['split', 'x', '--kernel', 'gauss']); "
        "print('loaded', sorted({'pyarrow', 'pulp'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_a_small_split_loads_no_library_that_it_does_without(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    probe = (
        "import sys; from clustersplit_cli.cli.app import run; "
        "assert run(['split', 'x.npy', '--stratify', 'none', '--quiet']) == 0; "
        "print('loaded', sorted({'scipy', 'sklearn', 'distributed'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", probe]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "loaded []"


def test_importing_the_package_and_running_it_as_a_module_both_work(
    command: Callable[..., Sequence[str]],
) -> None:
    done = subprocess.run(command("--version"), capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"clustersplit {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_options_their_words_and_columns(
    shell: str, command: Callable[..., Sequence[str]], folder: Path
) -> None:
    def completed(line: str) -> str:
        words = {
            "_CLUSTERSPLIT_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": line,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_WORD_TO_COMPLETE": line.rsplit(" ", maxsplit=1)[-1],
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        done = subprocess.run(
            command(), capture_output=True, text=True, env={**os.environ, **words}, timeout=60, check=False
        )
        assert done.stderr == ""
        return done.stdout

    assert "--standardize" in completed("clustersplit split --stan")
    answer = completed("clustersplit split x --kernel ")
    assert all(word in answer for word in ("rbf", "linear", "cosine", "polynomial"))
    assert "domain" in completed("clustersplit split feats.parquet --label do")
    assert "label,domain" in completed("clustersplit split feats.parquet --stratify label,do")
    assert "label=" in completed("clustersplit mmd feats.parquet --exclude la")
    assert "domain" not in completed("clustersplit split absent.parquet --label do")


def test_a_quiet_split_without_warnings_imports_nothing_slow_that_it_can_do_without(tmp_path: Any) -> None:
    words = ["split", str(SAMPLE), "--standardize", "zscore", "--out", str(tmp_path / "run"), "--quiet"]
    probe = (
        "import atexit, sys; from clustersplit_cli.cli import main; "
        "slow = {'rich', 'pyarrow.compute', 'pandas'}; "
        "atexit.register(lambda: print(sorted(slow & set(sys.modules)))); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *words], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "[]"
