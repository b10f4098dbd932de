"""`--engine stream` from the command line: what it writes, what it refuses, what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.cli.app import run

QUICK = ["--nystrom", "40", "--effort", "fast", "--quiet"]


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of two files, hive-partitioned by domain, with a list column of features."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    for domain in ("art", "photo"):
        x = rng.normal(size=(900, 6)).astype(np.float32) + (domain == "art")
        folder = tmp_path / "rows" / f"domain={domain}"
        folder.mkdir(parents=True)
        table = pa.table(
            {
                "embedding": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), 6),
                "label": rng.integers(3, size=900),
            }
        )
        pq.write_table(table, folder / "part.parquet", row_group_size=250)
    return tmp_path / "rows"


def report(folder: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(folder, "report.json").read_text("utf-8"))
    return content


def test_what_stream_writes_passes_verify_in_memory_and_in_pieces(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    formats = ["--format", "npy", "--format", "txt", "--format", "parquet"]
    assert run(["split", "rows", *QUICK, *formats, "--engine", "stream"]) == 0
    assert run(["verify", "rows_split", "--quiet"]) == 0, capsys.readouterr().err
    assert run(["verify", "rows_split", "--quiet", "--engine", "stream", "--rerun"]) == 0
    assert run(["verify", "rows_split", "--quiet", "--rerun"]) == 0
    val = np.load("rows_split/val.npy")
    assert val.dtype == np.int64
    assert np.loadtxt("rows_split/val.txt", dtype=int).tolist() == val.tolist()
    assert pq.read_table("rows_split/val.parquet")["row"].to_pylist() == val.tolist()
    found = report("rows_split")
    assert found["config"]["engine"] == found["engine"]["name"] == "stream"
    assert 0 <= found["engine"]["passes"] <= found["config"]["passes"] == 6
    assert found["engine"]["rows_per_second"] > 0
    assert found["certificate"]["backend"] == "threshold"
    assert len(found["constraints"]["cells"]) == 6


def test_a_split_made_in_memory_verifies_in_pieces(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "rows", *QUICK, "--engine", "local"]) == 0
    assert report("rows_split")["certificate"]["backend"] == "cbc"
    assert run(["verify", "rows_split", "--quiet", "--engine", "stream"]) == 0, capsys.readouterr().err
    edited = report("rows_split")
    for factor in (0.7, 1.5):  # below the MMD, and above what passes prove
        edited["bound"]["mmd_upper"] = factor * report("rows_split")["bound"]["mmd_upper"]
        Path("rows_split/report.json").write_text(json.dumps(edited))
        assert run(["verify", "rows_split", "--quiet", "--engine", "stream"]) == 1
        assert "is not between the MMD" in capsys.readouterr().err
        edited["bound"]["mmd_upper"] /= factor
        Path("rows_split/report.json").write_text(json.dumps(edited))


def test_a_forged_index_file_fails_in_pieces_too(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "rows", *QUICK, "--engine", "stream"]) == 0
    train, val = np.load("rows_split/train.npy"), np.load("rows_split/val.npy")
    train[0], val[0] = val[0], train[0]
    np.save("rows_split/train.npy", np.sort(train))
    np.save("rows_split/val.npy", np.sort(val))
    assert run(["verify", "rows_split", "--quiet", "--engine", "stream"]) == 1
    assert "MMD" in capsys.readouterr().err


def test_stream_is_chosen_when_the_rows_do_not_fit(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    wide = pa.table({**{f"f{j}": rng.normal(size=60_000) for j in range(40)}, "label": np.arange(60_000) % 2})
    pq.write_table(wide, "wide.parquet", row_group_size=5000)
    options = ["--nystrom", "60", "--effort", "fast", "--memory", "190MB", "--threads", "1"]
    assert run(["split", "wide.parquet", *options]) == 0
    assert report("wide_split")["config"]["engine"] == "stream"
    assert "stream: kernel: nystrom rbf with 60 landmarks" in capsys.readouterr().err
    assert run(["split", "wide.parquet", *options, "--engine", "local", "--force"]) == 2
    np.save("wide.npy", np.zeros((60_000, 40)))
    assert run(["split", "wide.npy", *options, "--stratify", "none", "--out", "other"]) == 2
    assert "more than the budget" in capsys.readouterr().err


def test_random_splits_are_those_of_the_local_engine(rows: Path) -> None:
    for engine in ("local", "stream"):
        words = ["baseline", "random", "rows", "--nystrom", "40", "--engine", engine, "--out", engine, "-q"]
        assert run(words) == 0
    assert np.load("stream/val.npy").tolist() == np.load("local/val.npy").tolist()
    assert report("stream")["mmd"]["value"] == pytest.approx(report("local")["mmd"]["value"], rel=1e-6)
    assert run(["verify", "stream", "--quiet"]) == 0
    assert run(["verify", "stream", "--quiet", "--engine", "stream"]) == 0


def test_mmd_in_pieces_is_that_in_memory(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "rows", *QUICK, "--engine", "stream"]) == 0
    found = []
    for engine in ("local", "stream"):
        capsys.readouterr()
        assert run(["mmd", "rows", "--split", "rows_split", "--engine", engine, "--json", "--quiet"]) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["mmd"]["value"] == pytest.approx(found[1]["mmd"]["value"], rel=1e-8)
    assert found[1]["split"]["same_input"]
    assert run(["mmd", "rows", "--by", "domain", "--engine", "stream"]) == 2
    assert "--by needs all rows in memory" in capsys.readouterr().err


def test_mmd_reads_in_pieces_by_itself_when_the_rows_do_not_fit(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    wide = pa.table({**{f"f{j}": rng.normal(size=60_000) for j in range(40)}, "label": np.arange(60_000) % 2})
    pq.write_table(wide, "wide.parquet", row_group_size=5000)
    val = np.arange(0, 60_000, 5)
    np.save("val.npy", val)
    np.save("train.npy", np.setdiff1d(np.arange(60_000), val))
    sides = ["--train", "train.npy", "--val", "val.npy", "--nystrom", "60", "--threads", "1"]
    engines = []
    for memory in ("8GB", "85MB"):
        assert run(["mmd", "wide.parquet", *sides, "--memory", memory, "--json", "--quiet"]) == 0
        found = json.loads(capsys.readouterr().out)
        engines.append((found["config"].get("engine", "local"), found["method"]["reason"]))
    assert [name for name, _ in engines] == ["local", "stream"]
    assert engines[1][1] == "read in pieces: all rows do not fit memory"
    for words in (["--engine", "local"], ["--exact"], ["--permutations", "10"]):
        assert run(["mmd", "wide.parquet", *sides[:4], *words, "--memory", "85MB"]) == 2
        assert "more than the budget of 0.085 GB" in capsys.readouterr().err
    assert run(["mmd", "wide.parquet", "--by", "label", "--memory", "85MB"]) == 2
    assert "more than the budget of 0.085 GB" in capsys.readouterr().err


def test_annotated_rows_and_indices_on_stdout(rows: Path, capfdbinary: Any) -> None:
    assert run(["split", "rows", *QUICK, "--engine", "stream", "--annotate", "sides.parquet"]) == 0
    sides = pq.read_table("sides.parquet")["split"].to_pylist()
    assert [row for row, side in enumerate(sides) if side == "val"] == np.load("rows_split/val.npy").tolist()
    capfdbinary.readouterr()
    assert run(["split", "rows", *QUICK, "--engine", "stream", "--out", "-", "--format", "txt"]) == 0
    assert list(map(int, capfdbinary.readouterr().out.split())) == np.load("rows_split/val.npy").tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stratify", "label", "--stratify", "domain"], "several --stratify needs all rows in memory"),
        (["--keep-together", "label"], "--keep-together needs all rows in memory"),
        (["--solver", "cbc"], "--solver cbc needs all rows in memory"),
        (["--certify", "always"], "--certify always needs all rows in memory"),
        (["--kernel", "cosine", "--standardize", "zscore"], "zscore with --kernel cosine needs all rows"),
        (["--nystrom", "off"], "--nystrom off keeps the exact kernel in memory"),
        (["--parts", "a=0.5,b=0.5", "--force-val", "x.txt"], "--force-val needs all rows in memory"),
        (["--passes", "1"], "--passes must be at least 2"),
        (["--spill", "nowhere"], "--spill nowhere is not a directory"),
        (["--scheduler", "tcp://x:1"], "--scheduler has no effect without --engine dask"),
        (["--memory", "1MB"], "more than the budget of 0.001 GB"),
    ],
)
def test_what_stream_cannot_do_is_refused_with_a_cure(
    rows: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["split", "rows", "--engine", "stream", *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert said in lines[-2]
    assert lines[-1].startswith("hint: ")
    assert not Path("rows_split").exists()


def test_a_run_with_the_exact_kernel_cannot_be_verified_in_pieces(
    rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["split", "rows", "--engine", "local", "--quiet"]) == 0
    assert run(["verify", "rows_split", "--engine", "stream"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "the run in rows_split has the exact kernel" in lines[-2]
    assert lines[-1].startswith("hint: use --engine local")


@pytest.mark.parametrize("command", [["baseline", "greedy"]])
def test_commands_without_engines_say_so(
    rows: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, "rows", "--engine", "stream"]) == 2
    assert f"{' '.join(command)} needs all rows in memory" in capsys.readouterr().err


def test_bad_values_are_named_by_their_row(rows: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pa.table(
        {"f0": [1.0, float("nan"), 3.0, 4.0], "f1": [1.0, 2.0, 3.0, 5.0], "label": [0, 0, None, 1]}
    )
    pq.write_table(table, "bad.parquet")
    assert run(["split", "bad.parquet", "--engine", "stream", "--stratify", "none"]) == 2
    assert (
        "1 of 4 rows of bad.parquet have missing, NaN or infinite features: row 1 (f0)"
        in capsys.readouterr().err
    )
    assert run(["split", "bad.parquet", "--engine", "stream"]) == 2
    assert "column 'label' has no value in 1 rows: 2" in capsys.readouterr().err
    renamed = table.rename_columns(["f0", "f1", "species"]).slice(2)
    pq.write_table(renamed, "own.parquet")
    assert run(["split", "own.parquet", "--engine", "stream", "--label", "species"]) == 2
    assert "column 'species' has no value in 1 rows: 0" in capsys.readouterr().err
    assert run(["split", "rows", "--engine", "stream", "--exclude", "domain=sea"]) == 2
    assert "its values: art, photo" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_leaves_nothing(
    rows: Path, command: Callable[..., Sequence[str | bytes]], number: signal.Signals
) -> None:
    rng = np.random.default_rng(0)
    n = 150_000
    pq.write_table(
        pa.table(
            {**{f"f{j}": rng.normal(size=n).astype(np.float32) for j in range(8)}, "label": np.arange(n) % 2}
        ),
        "many.parquet",
        row_group_size=20_000,
    )
    spill = rows.parent / "spill"
    spill.mkdir()
    words = ["split", "many.parquet", "--engine", "stream", "--nystrom", "300", "--memory", "300MB"]
    process = subprocess.Popen(
        command(*words, "--threads", "1", "--spill", str(spill)), stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not any("spill" in link for link in _open_files(process.pid)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -9), said
    assert list(spill.iterdir()) == []
    assert not (rows.parent / "many_split").exists()


def _open_files(pid: int) -> list[str]:
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found.append(str(link.readlink()))
        except OSError:
            continue
    return found


def test_a_terminal_sees_passes_rows_per_second_and_nothing_of_the_kind_for_the_search(
    rows: Path, command: Callable[..., Sequence[str | bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    import pty

    rng = np.random.default_rng(0)
    n = 60_000
    features = {f"f{j}": rng.normal(size=n).astype(np.float32) for j in range(8)}
    pq.write_table(pa.table({**features, "label": np.arange(n) % 2}), "many.parquet", row_group_size=5000)
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    words = command("split", "many.parquet", "--engine", "stream", "--nystrom", "300", "--threads", "1")
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, close_fds=True) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 1 << 16)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert process.returncode == 0
    lines = [line for line in said.decode().replace("\r", "\n").splitlines() if "━" in line]
    fast = [line for line in lines if "rows/s" in line]
    assert fast
    assert not [line for line in fast if "perturb" in line or "starts" in line or "polish" in line]
