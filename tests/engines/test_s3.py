"""Datasets behind s3:// URLs, on a real S3-compatible server that listens on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli.cli.app import run

pytest.importorskip("moto")
pytest.importorskip("flask")
fs = pytest.importorskip("pyarrow.fs")
if not hasattr(fs, "S3FileSystem"):
    pytest.skip("this pyarrow has no S3", allow_module_level=True)

COMMON = ["--nystrom", "60", "--effort", "fast", "--quiet"]


@pytest.fixture(scope="module")
def server(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address; its bucket holds the table as `tables/one/`, and an empty marker beside it."""
    from moto.server import ThreadedMotoServer

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "someone")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        process = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        process.start()
        host, port = process.get_host_and_port()
        bucket = fs.S3FileSystem(
            endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        bucket.create_dir("rows")
        for path in sorted(table.iterdir()):
            with bucket.open_output_stream(f"rows/tables/one/{path.name}") as stream:
                stream.write(path.read_bytes())
        with bucket.open_output_stream("rows/tables/one/_SUCCESS") as stream:
            stream.write(b"")
        yield f"{host}:{port}"
        process.stop()


def url(server: str, key: str, user: str = "") -> str:
    return f"s3://{user}rows/{key}?endpoint_override={server}&scheme=http&region=us-east-1"


def test_stream_and_dask_read_a_url_as_they_read_files(
    server: str, cluster: Any, table: Path, tmp_path: Path
) -> None:
    where = {name: tmp_path / name for name in ("files", "stream", "dask")}
    assert run(["split", str(table), *COMMON, "--engine", "stream", "--out", str(where["files"])]) == 0
    assert run(["split", url(server, "tables/one"), *COMMON, "--out", str(where["stream"])]) == 0
    (tmp_path / "cluster").mkdir()
    with cluster(tmp_path / "cluster") as own:
        engine = ["--engine", "dask", "--scheduler", own.address, "--format", "npy"]
        assert run(["split", url(server, "tables/one"), *COMMON, *engine, "--out", str(where["dask"])]) == 0
    for name in ("train.npy", "val.npy"):
        expected = np.load(where["files"] / name)
        np.testing.assert_array_equal(np.load(where["stream"] / name), expected)
        np.testing.assert_array_equal(np.load(where["dask"] / name), expected)
    report = json.loads((where["stream"] / "report.json").read_text("utf-8"))
    assert report["config"]["engine"] == "stream"
    assert [file["sha256"] for file in report["input"]["files"]] == [None] * 3


def test_a_single_object_is_a_dataset_and_names_the_run(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["split", url(server, "tables/one/part-1.parquet"), *COMMON]) == 0
    assert (tmp_path / "part-1_split" / "val.npy").exists()


def test_keys_in_a_url_are_not_told(server: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = url(server, "tables/one", user="someone:hush@")
    assert run(["split", secret, *COMMON, "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    written = (tmp_path / "out" / "report.json").read_text("utf-8")
    assert "hush" not in said.err + said.out + written
    assert run(["split", url(server, "nowhere", user="someone:hush@"), *COMMON]) == 2
    said = capsys.readouterr()
    assert "does not exist" in said.err
    assert "hush" not in said.err


def test_a_run_from_a_url_verifies(server: str, tmp_path: Path) -> None:
    assert run(["split", url(server, "tables/one"), *COMMON, "--out", str(tmp_path / "out")]) == 0
    assert run(["verify", str(tmp_path / "out"), "--quiet"]) == 0


def test_the_local_engine_says_that_it_reads_files(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", url(server, "tables/one"), *COMMON, "--engine", "local"]) == 2
    assert "the local engine reads files, not URLs" in capsys.readouterr().err
    assert run(["kfold", url(server, "tables/one"), "--engine", "local"]) == 2


def test_a_server_that_does_not_answer_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", "s3://rows/x?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
