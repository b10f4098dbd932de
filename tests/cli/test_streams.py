"""What goes to stdout and stderr, and what happens when they are pipes, full or closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Split = Callable[..., Any]
Command = Callable[..., Sequence[str]]
QUICK = ("--effort", "fast", "--certify", "never")


def test_a_plain_run_leaves_stdout_to_pipes_and_tells_people_on_stderr(split: Split) -> None:
    result = split("feats.parquet")
    assert result.out == ""
    assert [line.split()[0] for line in result.lines if not line.startswith(" ")] == [
        "rows",
        "MMD",
        "constraints",
        "wrote",
    ]
    assert result.lines[-1] == "wrote feats_split: train.npy, val.npy, report.json"
    assert "\x1b" not in result.err


def test_verbose_tells_all_of_it(split: Split) -> None:
    result = split("feats.parquet", "--verbose")
    assert result.out == ""
    assert [line.split()[0] for line in result.lines if not line.startswith(" ")] == [
        "kernel:",
        "train",
        "validation",
        "MMD",
        "random",
        *(["bound"] if "\nbound" in result.err else []),
        "objective",
        "constraints",
        "certificate",
        "kernel",
        "time",
        "wrote",
        "wrote",
        "wrote",
    ]
    assert result.lines[-3:] == [
        f"wrote feats_split/{name}" for name in ("train.npy", "val.npy", "report.json")
    ]
    refused = split("feats.parquet", "-v", "-q", "--force")
    assert (refused.code, refused.lines[0]) == (2, "error: --quiet and --verbose contradict each other")


def test_json_prints_the_report_as_it_was_written(split: Split, folder: Path) -> None:
    result = split("feats.parquet", "--json")
    assert result.out == (folder / "feats_split" / "report.json").read_text()
    assert json.loads(result.out)["schema_version"] == 1


def test_quiet_leaves_only_warnings(split: Split) -> None:
    assert split("feats.parquet", "--quiet").err == ""
    warned = split("feats.parquet", "-q", "--gamma", "1e8", "--force")
    assert warned.code == 0
    assert all(line.startswith("warning: ") for line in warned.lines)
    assert warned.lines


def test_out_dash_prints_validation_rows_only_and_writes_no_directory(
    split: Split, folder: Path, files: Callable[[], set[str]]
) -> None:
    result = split("feats.parquet", "--out", "-", "--format", "txt")
    assert files() == {"feats.parquet"}
    assert split("feats.parquet", "--quiet").code == 0
    expected = np.load(folder / "feats_split" / "val.npy").tolist()
    assert result.out == "".join(f"{row}\n" for row in expected)


def test_what_a_killed_run_left_is_removed_and_reported(split: Split, folder: Path) -> None:
    from clustersplit_cli.data.publish import staged_directory

    process = os.fork()
    if process == 0:  # a run that dies while it writes
        with staged_directory(folder / "feats_split", force=False):
            os._exit(0)
    os.waitpid(process, 0)
    assert [path.name for path in folder.glob(".clustersplit-*")]
    result = split("feats.parquet", "--quiet")
    assert result.code == 0
    assert result.err.startswith("note: removed ")
    assert list(folder.glob(".clustersplit-*")) == []


def test_what_a_killed_run_left_is_removed_by_a_run_that_is_refused(split: Split, folder: Path) -> None:
    from clustersplit_cli.data.publish import staged_directory, staged_file

    assert split("feats.parquet", "--quiet").code == 0
    process = os.fork()
    if process == 0:  # a run that dies while it writes
        with (
            staged_file(folder / "rows.parquet", force=False),
            staged_directory(folder / "feats_split", force=True),
        ):
            os._exit(0)
    os.waitpid(process, 0)
    assert len(list(folder.glob(".clustersplit-*"))) == 2
    result = split("feats.parquet", "--annotate", "rows.parquet")
    assert result.code == 2
    assert [line.partition("/")[0] for line in result.lines[:2]] == ["note: removed "] * 2
    assert result.lines[2] == "error: feats_split exists already"
    assert list(folder.glob(".clustersplit-*")) == []


def test_pipelines_work_in_a_strict_shell(folder: Path) -> None:
    script = """
        set -euo pipefail
        clustersplit() { "$PYTHON" -m clustersplit_cli "$@" $QUICK; }
        clustersplit split feats.parquet --json --quiet \\
            | "$PYTHON" -c 'import json, sys; print(json.load(sys.stdin)["sizes"]["val"])'
        clustersplit split feats.parquet --out - --format txt 2> /dev/null | wc -l
        clustersplit split feats.parquet --out - --format txt --quiet | head -n 1
        clustersplit split --help | head -n 1
        if clustersplit split missing.parquet --quiet 2> error.txt; then exit 9; fi
        head -n 1 error.txt
    """
    environment = {**os.environ, "PYTHON": sys.executable, "QUICK": " ".join(QUICK)}
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    count = np.load(folder / "feats_split" / "val.npy").size
    first = int(np.load(folder / "feats_split" / "val.npy")[0])
    assert done.stdout.splitlines() == [
        str(count),
        str(count),
        str(first),
        "Usage: clustersplit split [OPTIONS] [FEATURES]",
        "error: missing.parquet does not exist",
    ]


def test_a_reader_that_leaves_early_is_no_error(folder: Path, command: Command) -> None:
    big = pa.table({"f0": np.random.default_rng(0).normal(size=60_000), "label": np.zeros(60_000, int)})
    pq.write_table(big, folder / "big.parquet")
    quick = ("--kernel", "linear", "--restarts", "1", *QUICK)
    words = command("split", "big.parquet", "--h", "0.5", *quick, "--out", "-", "--format", "txt", "-q")
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()  # more than a pipe holds is still to come
    assert running.stderr.read() == b""
    assert running.wait(timeout=60) == 0
    running.stderr.close()


def test_losing_the_reader_of_the_messages_does_not_lose_the_result(folder: Path, command: Command) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command("split", "feats.parquet", *QUICK), stderr=writing, timeout=60, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert (folder / "feats_split" / "report.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [("--json",), ("--out", "-", "--format", "txt")])
def test_a_full_stdout_is_an_error_of_its_own(
    arguments: tuple[str, ...], folder: Path, command: Command
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("split", "feats.parquet", "-q", *QUICK, *arguments),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: cannot write ")
    published = "; feats_split is complete nevertheless" if "--json" in arguments else ""
    assert error.endswith(f"no space left on the device{published}")
    assert (folder / "feats_split" / "report.json").exists() == bool(published)
    assert hint == "hint: free some space, or write to another disk"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("debug", [(), ("--debug",)])
@pytest.mark.parametrize("closing", ["2>/dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_costs_nobody_the_result(
    closing: str, debug: tuple[str, ...], folder: Path
) -> None:
    def run(line: str) -> subprocess.CompletedProcess[str]:
        script = f'"$PYTHON" -m clustersplit_cli {line} {" ".join(debug)} {closing}'
        environment = {**os.environ, "PYTHON": sys.executable}
        return subprocess.run(
            ["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60, check=False
        )

    quick = " ".join(QUICK)
    for line in (
        f"split feats.parquet {quick} --json",
        "inspect feats.parquet --json",
        f"kfold feats.parquet --k 2 {quick} --json",
        "mmd feats.parquet --by label --json",
        "compare feats.parquet --repeats 1 --effort fast --json",
        "baseline random feats.parquet --force --json",
    ):
        done = run(line)
        assert (done.returncode, done.stderr) == (0, ""), line
        json.loads(done.stdout)
    assert run("verify feats_split").returncode == 0
    assert run("split nothing.parquet").returncode == 2


@pytest.mark.parametrize(
    ("closing", "arguments", "code"),
    [
        ("2>&-", "", 0),
        ("<&- >&- 2>&-", "", 0),
        (">&-", "--out - --format txt", 2),
        (">&-", "--json", 2),
        ("2>&-", "--h 7", 2),
    ],
)
def test_closed_streams_are_harmless(closing: str, arguments: str, code: int, folder: Path) -> None:
    line = f'"$PYTHON" -m clustersplit_cli split feats.parquet $QUICK {arguments} {closing}'
    environment = {**os.environ, "PYTHON": sys.executable, "QUICK": " ".join(QUICK)}
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment, timeout=60, check=False
    )
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert (folder / "feats_split").exists() == (code == 0 or arguments == "--json")


def test_ending_does_not_look_at_every_module_again() -> None:
    code = (
        "import atexit, gc, sys; atexit.register(lambda: sys.stderr.write(f'frozen {gc.get_freeze_count()}'))"
    )
    code += "; sys.argv = ['clustersplit', '--version']; from clustersplit_cli.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.startswith("clustersplit")
    assert int(done.stderr.removeprefix("frozen ")) > 1000


def test_reports_are_utf8_whatever_the_locale_says(process: Callable[..., Any], folder: Path) -> None:
    (folder / "feats.parquet").rename(folder / "ünï.parquet")
    result = process("split", "ünï.parquet", "--json", *QUICK, PYTHONIOENCODING="ascii")
    assert result.code == 0
    assert json.loads(result.out)["input"]["files"][0]["path"] == "ünï.parquet"
