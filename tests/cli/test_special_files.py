"""Names that are no text, files that are no files, and what the system refuses to hold."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Process = Callable[..., Any]
Command = Callable[..., Sequence[str]]
QUICK = ("--effort", "fast", "--certify", "never")


def odd(path: bytes) -> Path:
    return Path(os.fsdecode(path))


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def put_directory(path: Path) -> None:
    path.mkdir()


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("put", [put_pipe, put_socket, put_directory, put_device])
@pytest.mark.parametrize(
    "arguments",
    [
        "verify run",
        "report run",
        "mmd feats.parquet --split run",
        "split feats.parquet --config run/report.json",
    ],
)
def test_a_report_that_is_no_file_is_refused_at_once(
    arguments: str, put: Callable[[Path], None], process: Process, folder: Path
) -> None:
    (folder / "run").mkdir()
    put(folder / "run" / "report.json")
    result = process(*arguments.split())
    assert result.code == 2
    assert result.lines[0].startswith("error: ")
    assert "report.json is not a regular file" in result.lines[0]
    assert result.lines[1].startswith("hint: ")


@pytest.mark.parametrize("name", ["val.npy", "val_ids.npy"])
def test_an_index_file_that_is_no_file_fails_the_check(name: str, process: Process, folder: Path) -> None:
    assert process("split", "feats.parquet", "--id", "id", *QUICK).code == 0
    (folder / "feats_split" / name).unlink()
    os.mkfifo(folder / "feats_split" / name)
    result = process("verify", "feats_split")
    assert result.code == 1
    assert f"{name}" in result.err


def test_names_that_are_no_text_come_back_from_the_report(
    process: Process, folder: Path, table: pa.Table
) -> None:
    odd(b"in\xff").mkdir()
    pq.write_table(table.drop_columns(["label"]), pa.OSFile(b"in\xff/x\xfe.parquet", "wb"))
    pq.write_table(table.select(["label"]), pa.OSFile(b"meta\xfd.parquet", "wb"))
    with odd(b"val\xfc.npy").open("wb") as file:
        np.save(file, np.arange(3))
    words = (b"split", b"in\xff", b"--metadata", b"meta\xfd.parquet", b"--force-val", b"val\xfc.npy")
    made = process(*words, b"--out", b"out\xfb", b"--json", b"--html", *(word.encode() for word in QUICK))
    assert made.code == 0, made.err
    report = json.loads(made.out)
    paths = [os.fsencode(file["path"]) for file in report["input"]["files"]]
    assert paths == [b"in\xff/x\xfe.parquet", b"meta\xfd.parquet", b"val\xfc.npy"]
    assert json.loads((odd(b"out\xfb") / "report.json").read_text(encoding="utf-8")) == report
    verified = process(b"verify", b"out\xfb")
    assert verified.code == 0, verified.err
    assert process(b"report", b"out\xfb", b"--force").code == 0
    (odd(b"out\xfb") / "report.html").read_text(encoding="utf-8")
    odd(b"in\xff").rename(folder / "elsewhere")
    gone = process(b"verify", b"out\xfb")
    assert gone.code == 2
    assert gone.lines[0] == "error: the input in\\xff is not there any more"


def test_other_commands_take_names_that_are_no_text(process: Process, folder: Path) -> None:
    (folder / "feats.parquet").rename(odd(b"x\xff.parquet"))
    for words in (
        "inspect",
        "inspect --json",
        "inspect --k 3",
        "mmd --by domain --json",
        "mmd --by domain --witness w\udcfe.parquet",
        "compare --repeats 1 --json",
        "kfold --k 2 --json --html",
        "baseline random --html --force",
        "evaluate --search 1 --repeats 1 --json --html",
        "split --engine stream --json --out s\udcfe",
    ):
        name, *rest = words.split()
        subject = [rest.pop(0)] if name == "baseline" else []
        result = process(name, *subject, b"x\xff.parquet", *rest)
        assert result.code in (0, 2), (words, result.err)
        if "--json" in rest:
            json.loads(result.out)


@pytest.mark.parametrize("kilobytes", [1, 2, 4])
def test_a_limit_of_the_file_size_is_named(kilobytes: int, folder: Path, command: Command) -> None:
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"f0": rng.normal(size=900), "f1": rng.normal(size=900)}), "big.parquet")
    words = command("split", "big.parquet", "--stratify", "none", "--effort", "fast")
    limited = ["prlimit", f"--fsize={kilobytes << 10}", *words]
    done = subprocess.run(limited, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "file-size limit" in done.stderr
    assert done.stderr.splitlines()[-1] == "hint: raise the limit (ulimit -f)"
    assert not (folder / "big_split").exists()
