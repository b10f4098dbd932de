"""Crash-safe publication: a result is built beside its destination and renamed into place whole.

Everything happens in one hidden *staging area* beside the destination, on the same file system::

    .clustersplit-<digest of the destination's name>-<token>/
        lock    locked by the process at work; the lock dies with it
        new     the result being built
        old     the earlier result, moved aside by --force
        spent   one that another run has replaced meanwhile, on its way out

Its three states tell what a killed process left undone: without `old`, nothing was published; with `old`
and `new`, the earlier result had been moved aside and goes back; with `old` alone, the new result is in
place and the old one can go. At every moment a whole result, old or new, is at the destination or in `old`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from clustersplit_cli.cleanup import undone_at_the_end
from clustersplit_cli.data.destination import (
    REPORT_NAME,
    check_destination,
    check_file_destination,
    is_complete,
    is_vacant,
    output_error,
    refuse_occupied,
    resolve,
)
from clustersplit_cli.errors import OutputError

__all__ = [
    "REPORT_NAME",
    "check_destination",
    "check_file_destination",
    "is_complete",
    "recover",
    "staged_directory",
    "staged_file",
]

_OCCUPIED = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_publishing = threading.RLock()
"""Held while a result is renamed into place, so that nobody settles its staging area meanwhile."""
SECONDS_TO_PUBLISH = 0.4


@contextmanager
def staged_directory(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield an empty directory to fill; when the block ends well it becomes `path`, whole and on disk.

    If the block raises, or is interrupted, nothing is left and what was at `path` is untouched. The block
    must write `report.json` last: it is what marks a directory as complete.

    Raises
    ------
    OutputError
        If `path` is refused (see `check_destination`) or cannot be written.
    """
    check_destination(path, force=force)
    destination = resolve(path)
    with _explained(path), _staging_area(destination) as staging:
        staging.new.mkdir()
        yield staging.new
        if not is_complete(staging.new):
            raise ValueError(f"a run needs a {REPORT_NAME} with a schema_version")
        _sync_tree(staging.new)
        _sync(staging.root)
        recover(path)  # a run killed meanwhile may have moved the earlier result aside
        with _publishing:
            _swap(staging, path, destination, force=force)


@contextmanager
def staged_file(path: Path, *, force: bool) -> Iterator[Path]:
    """Yield a path to write one file to; when the block ends well the file becomes `path`.

    Promises and errors as in `staged_directory`; with `force` the earlier file is replaced in one step.
    """
    recover(path)
    check_file_destination(path, force=force)
    destination = resolve(path)
    with _explained(path), _staging_area(destination) as staging:
        yield staging.new
        _sync(staging.new)
        with _publishing:
            if force:
                staging.new.replace(destination)
            else:
                _rename_without_replacing(staging.new, path, destination)
        _sync(destination.parent)


def recover(path: Path) -> list[str]:
    """Put back a result that a killed run moved aside from `path`, and remove what else it left.

    The staging areas of living processes are not touched. Returns one line for the user per thing done, or
    that could not be done.
    """
    destination = resolve(path)
    try:
        prefix = _prefix(destination)
        areas = sorted(entry for entry in destination.parent.iterdir() if entry.name.startswith(prefix))
    except OSError:
        return []  # nothing can have been left; check_destination says what is wrong with the parent
    return [line for root in areas for line in _recover_area(_StagingArea(root), destination)]


@dataclass(frozen=True)
class _StagingArea:
    """The hidden directory described at the top of this module."""

    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def new(self) -> Path:
        return self.root / "new"

    @property
    def old(self) -> Path:
        return self.root / "old"

    @property
    def spent(self) -> Path:
        return self.root / "spent"

    @property
    def swap_unfinished(self) -> bool:
        return self.old.exists() and self.new.exists()

    def remove(self) -> None:
        """Remove everything, the lock last: without it nobody could tell a dead area from a new one."""
        for content in (self.new, self.old, self.spent):
            _remove(content)
        self.lock.unlink(missing_ok=True)
        self.root.rmdir()


def _prefix(destination: Path) -> str:
    # A digest, because the name itself may already be as long as the system allows.
    return f".clustersplit-{hashlib.sha256(os.fsencode(destination.name)).hexdigest()[:16]}-"


@contextmanager
def _staging_area(destination: Path) -> Iterator[_StagingArea]:
    """Create a locked staging area; at the end undo an unfinished swap and remove the area."""
    staging, lock = _new_name(destination), None
    # From before it is there until it is gone: a signal may come between any two steps.
    with undone_at_the_end(lambda: _abandon(staging, destination)):
        try:
            while (lock := _create_area(staging)) is None:
                staging = _new_name(destination)
            yield staging
        finally:
            # What cannot be removed now must not hide how the block ended; the next run removes it.
            with suppress(OSError), _publishing:
                try:
                    _settle(staging, destination)
                except BaseException:  # a signal: first remove the rest
                    _settle(staging, destination)
                    raise
            if lock is not None:
                os.close(lock)


def _new_name(destination: Path) -> _StagingArea:
    return _StagingArea(destination.parent / f"{_prefix(destination)}{secrets.token_hex(4)}")


def _abandon(staging: _StagingArea, destination: Path) -> None:
    """Settle a staging area on which another thread may be at work, as the process is about to end.

    An area that is just being published is left to the next run; that thread may not go on after this.
    """
    if not _publishing.acquire(timeout=SECONDS_TO_PUBLISH):
        return
    for _ in range(3):  # files may still be written while they are removed
        with suppress(OSError):
            _settle(staging, destination)
            return


def _create_area(staging: _StagingArea) -> int | None:
    """Make an area and return the descriptor that holds its lock; None if another process took it.

    Between creation and locking another process may take the area for a dead one and remove it: then a
    step below fails or the lock turns out to be unlinked, and another name is needed.
    """
    staging.root.mkdir(mode=0o700)
    try:
        lock = os.open(staging.lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        return lock  # no locks on this file system: `recover` will then not dare to remove it
    if os.fstat(lock).st_nlink:
        return lock
    os.close(lock)
    return None


def _recover_area(staging: _StagingArea, destination: Path) -> list[str]:
    """Settle one staging area if its process is dead; return what to tell the user."""
    try:
        lock = os.open(staging.lock, os.O_RDWR)
    except FileNotFoundError:
        # Its process is between creating it and locking it (and will try again), or died there.
        with suppress(OSError):
            staging.root.rmdir()
        return []
    except OSError as error:
        return [f"left {staging.root} alone: {error.strerror}"]
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return []
    except OSError as error:
        os.close(lock)
        return [f"left {staging.root} alone, a run may be using it: {error.strerror}; delete it if none is"]
    try:
        return _settle(staging, destination)
    except OSError as error:
        return [f"could not clean up after an interrupted run: {output_error(staging.root, error)}"]
    finally:
        os.close(lock)


def _settle(staging: _StagingArea, destination: Path) -> list[str]:
    """Undo an unfinished swap, then remove the area, whose lock the caller holds."""
    lines = []
    if staging.swap_unfinished:
        try:
            if is_vacant(destination):
                staging.old.rename(destination)
                _sync(destination.parent)
                lines.append(f"put {destination} back: an interrupted run had moved it aside")
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
    if staging.swap_unfinished and not is_complete(destination):
        return [f"kept {staging.old}, an earlier result: {destination} now holds something else"]
    staging.remove()
    return [*lines, f"removed {staging.root}, left by an interrupted run"]


def _swap(staging: _StagingArea, path: Path, destination: Path, *, force: bool) -> None:
    """Move the earlier run aside if there is one, and the new one into place."""
    while True:
        refuse_occupied(path, destination, force=force)
        if not is_vacant(destination):
            if staging.old.exists():  # from a round that lost a race: the winner's whole result is in place
                # Half of it must never be in `old`, from where it would be put back.
                staging.old.rename(staging.spent)
                _remove(staging.spent)
            with suppress(FileNotFoundError):  # another run has just moved it aside
                destination.rename(staging.old)
            _sync(staging.root)
            _sync(destination.parent)
        try:
            staging.new.rename(destination)
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
            continue  # another run published meanwhile: look again
        _sync(destination.parent)
        _sync(staging.root)
        return


def _rename_without_replacing(source: Path, path: Path, destination: Path) -> None:
    try:
        os.link(source, destination)
    except FileExistsError:
        raise OutputError(f"{path} appeared meanwhile", hint="--force replaces it") from None
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        check_file_destination(path, force=False)
        source.rename(destination)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync_tree(directory: Path) -> None:
    for folder, _, names in os.walk(directory, topdown=False):
        for name in names:
            _sync(Path(folder, name))
        _sync(Path(folder))


def _sync(path: Path) -> None:
    """Force a file's bytes, or a directory's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot sync a directory; they keep its entries on the server anyway.
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise output_error(path, error) from error
