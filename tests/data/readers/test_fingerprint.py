"""What was read is what the report says was read."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import fingerprint, load
from clustersplit_cli.data.readers.fingerprint import Fingerprints, stamp
from clustersplit_cli.errors import InputError

ROWS = 6000


def values(seed: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, width)).astype(np.float32)


def write(path: Path, seed: int) -> None:
    """Write a file that is read in several pieces."""
    if path.suffix == ".npy":
        np.save(path, values(seed, 512))
    elif path.suffix == ".parquet":
        table = pa.table({f"x{j}": column for j, column in enumerate(values(seed, 16).T)})
        pq.write_table(table, path, row_group_size=500, compression=None, use_dictionary=False)
    else:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(values(seed, 16).ravel()), 16)
        pa.feather.write_feather(pa.table({"v": lists}), path, chunksize=500, compression="uncompressed")


def overwrite(path: Path) -> None:
    """Same size, same inode, other content."""
    twin = path.with_name("twin" + path.suffix)
    write(twin, 1)
    with path.open("r+b") as file:
        file.write(twin.read_bytes())


def replace(path: Path) -> None:
    """A new file under the same name, with the times of the old one."""
    status = path.stat()
    twin = path.with_name("twin" + path.suffix)
    write(twin, 1)
    os.utime(twin, ns=(status.st_atime_ns, status.st_mtime_ns))
    twin.replace(path)


def forge(path: Path) -> None:
    """Other content, with size, inode and time as before."""
    status = path.stat()
    overwrite(path)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("suffix", [".npy", ".parquet", ".feather"])
@pytest.mark.parametrize("change", [overwrite, replace, forge, append, truncate, Path.unlink])
@pytest.mark.parametrize("age", [0, 3600])
def test_a_file_that_changes_while_it_is_read_is_an_error(suffix, change, age, tmp_path) -> None:
    path = tmp_path / f"data{suffix}"
    write(path, 0)
    past = path.stat().st_mtime_ns - age * 10**9
    os.utime(path, ns=(past, past))
    changed = threading.Event()

    def meddle(stage: str, done: int, total: int) -> None:
        if not changed.is_set() and 0 < done < total:
            changed.set()
            change(path)

    with pytest.raises(InputError, match=f"data{suffix} changed while it was read"):
        load(ReadRequest(path, stratify=()), meddle)
    assert changed.is_set()


def test_a_change_between_the_first_look_and_the_hash_is_seen(tmp_path) -> None:
    path = tmp_path / "data.npy"
    write(path, 0)
    look = stamp(path)
    forge(path)
    with pytest.raises(InputError, match="changed"), Fingerprints([(look, "features")]) as prints:
        raise InputError("a symptom of the change")
    with Fingerprints([(stamp(path), "features")]) as prints:
        (file,) = prints.files()
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_companion_that_changes_is_an_error(tmp_path) -> None:
    path, label = tmp_path / "data.npy", tmp_path / "label.npy"
    write(path, 0)
    np.save(label, np.arange(ROWS) % 2)

    def meddle(stage: str, done: int, total: int) -> None:
        append(label)

    with pytest.raises(InputError, match=r"label\.npy changed"):
        load(ReadRequest(path, label_file=label), meddle)


def test_every_file_is_reported_with_size_and_hash(tmp_path) -> None:
    path, label, meta = tmp_path / "data.npy", tmp_path / "label.npy", tmp_path / "meta.csv"
    write(path, 0)
    np.save(label, np.arange(ROWS) % 2)
    meta.write_text("site\n" + "a\n" * ROWS)
    dataset = load(ReadRequest(path, label_file=label, metadata=meta, domain="site"))
    assert [file.role for file in dataset.files] == ["features", "label", "metadata"]
    for file, original in zip(dataset.files, (path, label, meta), strict=True):
        assert file.path == str(original)
        assert file.bytes == original.stat().st_size
        assert file.sha256 == hashlib.sha256(original.read_bytes()).hexdigest()


def test_an_error_stops_the_hashing_of_a_large_file(tmp_path) -> None:
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, 1 << 36)  # takes no room, but a minute to hash
    os.utime(path, (1, 1))
    with pytest.raises(InputError, match="something else"), Fingerprints([(stamp(path), "features")]):
        raise InputError("something else")
    assert "sha256" not in [thread.name for thread in threading.enumerate()]


def hashing_on_hold(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let hashes wait for an event."""
    go, plain = threading.Event(), fingerprint._sha256

    def waiting(path: Path, stop: threading.Event | None = None) -> str:
        assert go.wait(60)
        return plain(path, stop)

    monkeypatch.setattr(fingerprint, "_sha256", waiting)
    return go


def test_rows_do_not_wait_for_the_hash(tmp_path, monkeypatch) -> None:
    path = tmp_path / "data.npy"
    write(path, 0)
    os.utime(path, (1e9, 1e9))
    go = hashing_on_hold(monkeypatch)
    dataset = load(ReadRequest(path, stratify=()))
    assert np.array_equal(dataset.features, values(0, 512))
    go.set()
    assert dataset.files[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("change", [overwrite, replace, forge, append, truncate, Path.unlink])
def test_a_file_that_changes_before_it_is_hashed_is_an_error(change, tmp_path, monkeypatch) -> None:
    path = tmp_path / "data.npy"
    write(path, 0)
    os.utime(path, (1e9, 1e9))
    go = hashing_on_hold(monkeypatch)
    dataset = load(ReadRequest(path, stratify=()))
    change(path)
    go.set()
    with pytest.raises(InputError, match=r"data\.npy"):
        _ = dataset.files
