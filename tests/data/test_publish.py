from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit_cli import cleanup
from clustersplit_cli.data import publish
from clustersplit_cli.data.publish import (
    check_destination,
    check_file_destination,
    recover,
    staged_directory,
    staged_file,
)
from clustersplit_cli.data.writers import write_run
from clustersplit_cli.errors import OutputError

REPORT = '{"schema_version": 1, "run": "%s"}'


def _publish(destination: Path, name: str, *, force: bool = False) -> None:
    with staged_directory(destination, force=force) as directory:
        (directory / "train.txt").write_text(name)
        (directory / "report.json").write_text(REPORT % name)


def _content(directory: Path) -> dict[str, str]:
    return {entry.name: entry.read_text() for entry in directory.iterdir()}


def _run(name: str) -> dict[str, str]:
    return {"train.txt": name, "report.json": REPORT % name}


def _names(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


# --- What may be written to -------------------------------------------------------------------------------


def test_a_new_place_and_an_empty_directory_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("new", "empty"):
        check_destination(tmp_path / name, force=False, inputs=[tmp_path / "features.parquet"])
        _publish(tmp_path / name, "first")
        assert _content(tmp_path / name) == _run("first")


def test_an_earlier_run_is_refused_without_force_and_the_cure_is_force(tmp_path: Path) -> None:
    _publish(tmp_path / "run", "first")
    with pytest.raises(OutputError, match="run exists already") as caught:
        check_destination(tmp_path / "run", force=False)
    assert caught.value.hint == "--force replaces it; or choose another --out"
    check_destination(tmp_path / "run", force=True)


def _file(path: Path) -> None:
    path.write_text("mine")


def _strangers_directory(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("mine")


def _foreign_report(path: Path) -> None:
    _strangers_directory(path)
    (path / "report.json").write_text('{"tests": 3}')


def _truncated_report(path: Path) -> None:
    _strangers_directory(path)
    (path / "report.json").write_text('{"schema_version": 1, "tru')


def _run_with_a_folder(path: Path) -> None:
    _publish(path, "first")
    (path / "models").mkdir()


def _run_with_a_notebook(path: Path) -> None:
    _publish(path, "first")
    (path / "analysis.ipynb").write_text("mine")


def _run_with_embeddings(path: Path) -> None:
    _publish(path, "first")
    (path / "embeddings.npy").write_bytes(b"mine")


def _run_with_notes(path: Path) -> None:
    _publish(path, "first")
    (path / "notes.txt").write_text("mine")


def _run_with_notes_in_a_fold(path: Path) -> None:
    _publish(path, "first")
    (path / "fold_9").mkdir()
    (path / "fold_9" / "notes.txt").write_text("mine")


def _run_with_another_report(path: Path) -> None:
    _publish(path, "first")
    (path / "accuracy.json").write_text("{}")


def _run_with_a_link(path: Path) -> None:
    _publish(path, "first")
    (path / "latest.npy").symlink_to("train.txt")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_file, "is a file"),
        (_strangers_directory, "is not empty and is not an earlier run"),
        (_foreign_report, "is not empty and is not an earlier run"),
        (_truncated_report, "is not empty and is not an earlier run"),
        (_run_with_a_folder, "holds things that no run wrote: models"),
        (_run_with_a_notebook, "holds things that no run wrote: analysis.ipynb"),
        (_run_with_embeddings, "holds things that no run wrote: embeddings.npy"),
        (_run_with_notes, "holds things that no run wrote: notes.txt"),
        (_run_with_notes_in_a_fold, "holds things that no run wrote: fold_9"),
        (_run_with_another_report, "holds things that no run wrote: accuracy.json"),
        (_run_with_a_link, "holds things that no run wrote: latest.npy"),
    ],
)
def test_what_is_not_a_run_is_refused_even_with_force(
    tmp_path: Path, make: Callable[[Path], None], message: str
) -> None:
    make(tmp_path / "out")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    with pytest.raises(OutputError, match=message) as caught:
        check_destination(tmp_path / "out", force=True)
    assert caught.value.hint is not None and "--force" not in caught.value.hint
    with pytest.raises(OutputError, match=message):
        _publish(tmp_path / "out", "second", force=True)
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_places_that_hold_what_is_needed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data" / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data" / "deep")
    source = tmp_path / "data" / "deep" / "er" / "x.parquet"
    for path in (Path("/"), Path(), Path(".."), tmp_path / "data"):
        with pytest.raises(OutputError, match=r"root of the file system|working directory"):
            check_destination(path, force=True)
    monkeypatch.chdir("/")
    for path in (source, source.parent, tmp_path / "data"):
        with pytest.raises(OutputError, match="is, or holds, the input"):
            check_destination(path, force=True, inputs=[source])
    with pytest.raises(OutputError, match="lies inside the input"):
        check_destination(tmp_path / "data" / "out", force=True, inputs=[tmp_path / "data"])
    (tmp_path / "link").symlink_to(source.parent)
    with pytest.raises(OutputError, match="is, or holds, the input"):
        check_destination(tmp_path / "link", force=True, inputs=[source])


def test_a_place_whose_parent_cannot_take_it_is_refused_with_a_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    cases = {
        tmp_path / "missing" / "run": ("missing does not exist", f"mkdir -p '{tmp_path / 'missing'}'"),
        tmp_path / "file" / "run": ("file is not a directory", "choose another place"),
        tmp_path / ("n" * 256): (
            "the name is too long",
            "choose a shorter name (most systems allow 255 bytes)",
        ),
        tmp_path / "nul\0": ("null", "choose another place"),
    }
    for path, (message, hint) in cases.items():
        for check in (check_destination, check_file_destination):
            with pytest.raises(OutputError, match=message) as caught:
                check(path, force=True)
            assert caught.value.hint == hint
            assert "\n" not in caught.value.message
    with pytest.raises(OutputError):
        check_destination(tmp_path / "loop", force=True)


def test_a_place_without_permission_is_refused_early_and_late() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give its rights up for a moment")
    with tempfile.TemporaryDirectory() as name:
        destination = Path(name, "run")
        Path(name).chmod(0o755)
        os.seteuid(65534)
        try:
            with pytest.raises(OutputError, match="is not writable") as caught:
                check_destination(destination, force=False)
            assert caught.value.hint == "choose a place you may write to"
        finally:
            os.seteuid(0)
        with staged_directory(destination, force=False) as directory:
            (directory / "report.json").write_text(REPORT % "first")
        Path(name).chmod(0o777)
        os.seteuid(65534)
        try:  # the parent can be written, but somebody else's directory cannot be moved out of it
            with pytest.raises(OutputError, match=r"cannot write .*: permission denied"):
                _publish(destination, "second", force=True)
        finally:
            os.seteuid(0)
        assert _names(Path(name)) == ["run"]
        assert _content(destination) == {"report.json": REPORT % "first"}


def test_a_file_is_never_written_over_a_device_or_a_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    for path, message in (
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
    ):
        with pytest.raises(OutputError, match=message):
            check_file_destination(path, force=True)
    with pytest.raises(OutputError, match="is a directory"):
        check_file_destination(tmp_path / "directory", force=True)


# --- Publication ------------------------------------------------------------------------------------------


def test_a_name_as_long_as_the_system_allows_can_be_published_and_replaced(tmp_path: Path) -> None:
    destination = tmp_path / ("é" * 127 + "n")
    _publish(destination, "first")
    _publish(destination, "second", force=True)
    assert _content(destination) == _run("second")
    assert _names(tmp_path) == [destination.name]


def test_a_linked_destination_is_replaced_where_it_points(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").symlink_to("disk/run")
    _publish(tmp_path / "run", "first")
    _publish(tmp_path / "run", "second", force=True)
    assert (tmp_path / "run").is_symlink()
    assert _content(tmp_path / "disk" / "run") == _run("second")
    assert _names(tmp_path / "disk") == ["run"]


def test_the_published_directory_has_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").mkdir()
    _publish(tmp_path / "run", "first")
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "ordinary").stat().st_mode


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError, OutputError])
def test_a_block_that_fails_leaves_the_old_run_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    _publish(tmp_path / "run", "first")
    (tmp_path / "table").write_text("first")
    with pytest.raises(error), staged_directory(tmp_path / "run", force=True) as directory:
        (directory / "report.json").write_text(REPORT % "second")
        raise error("stop")
    with pytest.raises(error), staged_file(tmp_path / "table", force=True) as file:
        file.write_text("second")
        raise error("stop")
    assert _content(tmp_path / "run") == _run("first")
    assert (tmp_path / "table").read_text() == "first"
    assert _names(tmp_path) == ["run", "table"]


def test_a_run_without_a_report_is_never_published(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"report\.json"),
        staged_directory(tmp_path / "run", force=False) as directory,
    ):
        (directory / "train.txt").write_text("1")
    assert _names(tmp_path) == []


def test_what_appears_at_the_destination_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match="exists already"),
        staged_directory(tmp_path / "run", force=False) as directory,
    ):
        (directory / "report.json").write_text(REPORT % "late")
        _publish(tmp_path / "run", "early")
    assert _content(tmp_path / "run") == _run("early")
    with (
        pytest.raises(OutputError, match="not an earlier run"),
        staged_directory(tmp_path / "other", force=True) as directory,
    ):
        (directory / "report.json").write_text(REPORT % "late")
        _strangers_directory(tmp_path / "other")
    assert _names(tmp_path / "other") == ["thesis.txt"]
    with (
        pytest.raises(OutputError, match="appeared meanwhile"),
        staged_file(tmp_path / "table", force=False) as file,
    ):
        file.write_text("late")
        (tmp_path / "table").write_text("early")
    assert (tmp_path / "table").read_text() == "early"
    assert _names(tmp_path) == ["other", "run", "table"]


def test_a_file_is_published_and_replaced(tmp_path: Path) -> None:
    for name, force in (("first", False), ("second", True)):
        with staged_file(tmp_path / "table", force=force) as file:
            file.write_text(name)
        assert (tmp_path / "table").read_text() == name
    with pytest.raises(OutputError, match="exists already"), staged_file(tmp_path / "table", force=False):
        pass
    assert _names(tmp_path) == ["table"]


# --- Recovery ---------------------------------------------------------------------------------------------


def _left_behind(destination: Path, *contents: str) -> Path:
    """Make what a killed process leaves: a staging area whose lock nobody holds."""
    with suppress(KeyboardInterrupt), staged_directory(destination, force=True) as directory:
        area = directory.parent
        raise KeyboardInterrupt
    area.mkdir()
    (area / "lock").touch()
    for content in contents:
        (area / content).mkdir()
        (area / content / "train.txt").write_text(content)
        (area / content / "report.json").write_text(REPORT % content)
    return area


def test_nothing_is_done_or_said_where_nothing_was_left(tmp_path: Path) -> None:
    _publish(tmp_path / "run", "first")
    assert recover(tmp_path / "run") == []
    assert recover(tmp_path / "missing" / "run") == []
    assert _content(tmp_path / "run") == _run("first")


def test_unpublished_work_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    area = _left_behind(tmp_path / "run", "new")
    assert recover(tmp_path / "run") == [f"removed {area}, left by an interrupted run"]
    assert _names(tmp_path) == []


def test_a_run_moved_aside_by_a_dead_process_goes_back(tmp_path: Path) -> None:
    area = _left_behind(tmp_path / "run", "new", "old")
    assert recover(tmp_path / "run") == [
        f"put {tmp_path / 'run'} back: an interrupted run had moved it aside",
        f"removed {area}, left by an interrupted run",
    ]
    assert _content(tmp_path / "run") == _run("old")
    assert _names(tmp_path) == ["run"]


def test_a_run_moved_aside_goes_back_before_the_next_is_published(tmp_path: Path) -> None:
    _left_behind(tmp_path / "run", "new", "old")
    with pytest.raises(OutputError, match="exists already"):
        _publish(tmp_path / "run", "second")
    assert _content(tmp_path / "run") == _run("old")
    assert _names(tmp_path) == ["run"]


@pytest.mark.parametrize("contents", [("old",), ("new", "old")])
def test_a_replaced_run_is_removed_when_a_whole_one_is_in_place(
    tmp_path: Path, contents: tuple[str, ...]
) -> None:
    _left_behind(tmp_path / "run", *contents)
    (area,) = tmp_path.iterdir()
    shutil.copytree(area / "old", tmp_path / "run")
    assert recover(tmp_path / "run") == [f"removed {area}, left by an interrupted run"]
    assert _content(tmp_path / "run") == _run("old")
    assert _names(tmp_path) == ["run"]


def test_a_run_killed_while_it_discards_what_another_replaced_leaves_nothing_half_to_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    area, destination = _left_behind(tmp_path / "run", "new", "old"), tmp_path / "run"
    shutil.copytree(area / "old", destination)  # what the winner of the race has published
    remove = shutil.rmtree

    def killed_half_way(directory: Path) -> None:
        (directory / "report.json").unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(shutil, "rmtree", killed_half_way)
        publish._swap(publish._StagingArea(area), destination, destination, force=True)
    remove(destination)  # as it looks while a third run has just moved it aside
    recover(destination)
    assert _names(tmp_path) == []


def test_the_only_whole_run_is_kept_when_something_else_took_its_place(tmp_path: Path) -> None:
    area = _left_behind(tmp_path / "run", "new", "old")
    _strangers_directory(tmp_path / "run")
    (line,) = recover(tmp_path / "run")
    assert line.startswith(f"kept {area / 'old'}, an earlier result")
    assert _content(area / "old") == _run("old")
    assert _names(tmp_path / "run") == ["thesis.txt"]


def test_an_area_abandoned_before_it_was_locked_is_removed(tmp_path: Path) -> None:
    area = _left_behind(tmp_path / "run")
    (area / "lock").unlink()
    assert recover(tmp_path / "run") == []
    assert _names(tmp_path) == []


def test_the_work_of_a_living_process_and_of_other_destinations_is_not_touched(tmp_path: Path) -> None:
    other = _left_behind(tmp_path / "other", "new", "old")
    with staged_directory(tmp_path / "run", force=False) as directory:
        (directory / "train.txt").write_text("first")
        assert recover(tmp_path / "run") == []
        (directory / "report.json").write_text(REPORT % "first")
    assert _content(tmp_path / "run") == _run("first")
    assert _names(tmp_path) == sorted([other.name, "run"])


def test_a_killed_copy_of_a_table_is_removed(tmp_path: Path) -> None:
    area = _left_behind(tmp_path / "table")
    (area / "new").write_text("half a table")
    (tmp_path / "table").write_text("first")
    assert recover(tmp_path / "table") == [f"removed {area}, left by an interrupted run"]
    assert _names(tmp_path) == ["table"]


# --- Full and read-only disks -----------------------------------------------------------------------------


def _write_much(destination: Path, suffix: str) -> None:
    rows = np.random.default_rng(0).permutation(1_000_000)[:500_000]
    write_run(
        destination,
        parts={"train": rows, "val": rows},
        report=REPORT % "second",
        formats=[suffix],
        force=True,
    )


@pytest.mark.parametrize("suffix", ["npy", "txt", "parquet"])
def test_a_file_size_limit_leaves_the_old_run_and_says_what_to_do(tmp_path: Path, suffix: str) -> None:
    _publish(tmp_path / "run", "first")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(OutputError, match="would exceed the file-size limit") as caught:
            _write_much(tmp_path / "run", suffix)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.hint == "raise the limit (ulimit -f)"
    assert _content(tmp_path / "run") == _run("first")
    assert _names(tmp_path) == ["run"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "clustersplit-test", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system can only be mounted by root, where mounting is allowed")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("suffix", ["npy", "txt", "parquet"])
def test_a_full_disk_leaves_the_old_run_and_says_what_to_do(small_disk: Path, suffix: str) -> None:
    _publish(small_disk / "run", "first")
    with pytest.raises(OutputError, match="no space left on the device") as caught:
        _write_much(small_disk / "run", suffix)
    assert caught.value.hint == "free some space, or write to another disk"
    assert _content(small_disk / "run") == _run("first")
    assert _names(small_disk) == ["run"]


def test_a_read_only_disk_and_a_mount_point_are_refused(small_disk: Path) -> None:
    with pytest.raises(OutputError, match="is a mount point"):
        check_destination(small_disk, force=False)
    _publish(small_disk / "run", "first")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OutputError, match=r"is not writable|read-only"):
        check_destination(small_disk / "run", force=True)
    assert _content(small_disk / "run") == _run("first")


@pytest.mark.parametrize("step", ["os.mkdir", "os.open", "publish.fcntl.flock", "os.fstat"])
def test_a_signal_while_a_staging_area_is_made_leaves_none(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come right after any of the steps, before anything else is done."""
    holder: Any = publish.fcntl if "flock" in step else os
    name = step.rpartition(".")[2]
    real = getattr(holder, name)

    def interrupted(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(holder, name, real)
        real(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(holder, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        _publish(tmp_path / "run", "first")
    assert _names(tmp_path) == []


def test_a_signal_while_a_temporary_folder_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def interrupted(*given: Any, **named: Any) -> None:
        real(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), cleanup.temporary_folder(str(tmp_path)):
        pass
    assert _names(tmp_path) == []


def test_a_staging_area_is_known_to_a_process_that_ends_until_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[int] = []
    settle = publish._settle

    def look(*area: Any) -> list[str]:
        known.append(len(cleanup._open))
        return settle(*area)

    monkeypatch.setattr(publish, "_settle", look)
    with publish.staged_directory(tmp_path / "run", force=False) as folder:
        (folder / "report.json").write_text('{"schema_version": 1}')
    assert known == [1]
    assert not cleanup._open
