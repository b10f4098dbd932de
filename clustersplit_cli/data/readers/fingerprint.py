"""What a file was when it was read: its SHA-256, and whether it changed in the meantime."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from types import TracebackType

from clustersplit_cli.data.dataset import InputFile
from clustersplit_cli.data.readers.naming import closest, cure, listed, reason, report_path, shown
from clustersplit_cli.errors import InputError

_CHUNK = 1 << 20
# File systems stamp times in ticks of up to two seconds; a second write within a tick leaves no trace.
_TICK_NS = 2_000_000_000


@dataclass(frozen=True)
class Stamp:
    """The identity of a file at the moment of the first look at it."""

    path: Path
    device: int
    inode: int
    bytes: int
    modified_ns: int
    changed_ns: int
    taken_ns: int

    @property
    def is_recent(self) -> bool:
        """Whether the file was written so shortly before the look that its time cannot be trusted."""
        return self.taken_ns - self.modified_ns < _TICK_NS


def stamp(path: Path) -> Stamp:
    """Take the identity of a regular file, or explain why there is none."""
    taken = time.time_ns()
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat differs between Python versions for odd names
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot open {shown(path)}: {reason(error)}", hint=cure(error, "check the path")
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise InputError(
            f"{shown(path)} is not a regular file",
            hint="save the data to a file first; pipes cannot be read twice",
        )
    return Stamp(
        path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, taken
    )


def content_of(path: Path) -> bytes:
    """Return the whole content of a regular file; of anything else, nothing is read, since it might block.

    Raises
    ------
    InputError
    """
    stamp(path)
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot open {shown(path)}: {reason(error)}", hint=cure(error, "copy the file again")
        ) from error


def text_of(path: Path) -> str:
    """Return the whole content of a regular file of text.

    Raises
    ------
    InputError
    """
    try:
        return content_of(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(path)} is not UTF-8 text", hint="check which file this is") from error


def read_head(path: Path, size: int) -> bytes:
    """Return the first bytes of a regular file."""
    stamp(path)
    try:
        with path.open("rb") as file:
            return file.read(size)
    except OSError as error:
        raise InputError(
            f"cannot open {shown(path)}: {reason(error)}", hint=cure(error, "copy the file again")
        ) from error


class Fingerprints:
    """Hash files in the background while they are read, and see to it that none of them changes.

    An input error inside the block that a changed file explains is reported as the change. Hashing goes on
    after the block: reading a file takes less time, and what follows need not wait.
    """

    def __init__(self, stamps: Sequence[tuple[Stamp, str]]) -> None:
        self._stamps = tuple(stamps)
        self._digests: list[str] = []
        self._failure: InputError | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hash_all, name="sha256", daemon=True)

    def __enter__(self) -> Fingerprints:
        self._thread.start()
        if any(first_look.is_recent for first_look, _ in self._stamps):
            # Times cannot show a change, so the content must: hash before reading, and again afterwards.
            self._thread.join()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            return
        self._stop.set()
        self._thread.join()
        if isinstance(error, InputError):
            self._check_unchanged()

    def check(self) -> None:
        """Raise if a file has changed since the first look; wait for hashes only where times cannot tell."""
        if any(first_look.is_recent for first_look, _ in self._stamps):
            self.files()
        else:
            self._check_unchanged()

    def files(self) -> tuple[InputFile, ...]:
        """Wait for the hashes and return them; raise if a file is not what it was at the first look."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        self._check_unchanged()
        return tuple(
            InputFile(report_path(first_look.path), role, first_look.bytes, digest)
            for (first_look, role), digest in zip(self._stamps, self._digests, strict=True)
        )

    def _check_unchanged(self) -> None:
        """Raise if a file is not what it was at the first look."""
        for (first_look, _), digest in zip_longest(self._stamps, self._digests):
            if not _is_unchanged(first_look, digest):
                raise InputError(
                    f"{shown(first_look.path)} changed while it was read",
                    hint="wait until whatever writes it has finished, then run again",
                )

    def _hash_all(self) -> None:
        """Hash one file after the other; a failure is kept for the thread that asks."""
        _give_way()
        try:
            for first_look, _ in self._stamps:
                digest = _sha256(first_look.path, self._stop)
                if self._stop.is_set():
                    return
                self._digests.append(digest)
        except OSError as error:
            self._failure = InputError(
                f"cannot read {shown(first_look.path)}: {reason(error)}",
                hint=cure(error, "copy the file again"),
            )


def _give_way() -> None:
    """Let other threads go first: nobody waits for hashes until the end. Only Linux ranks single threads."""
    if sys.platform == "linux":
        with suppress(OSError):
            thread = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 10)


def _sha256(path: Path, stop: threading.Event | None = None) -> str:
    """Hash a file in pieces, giving up early when asked to."""
    digest = hashlib.sha256()
    piece = memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while (size := file.readinto(piece)) and not (stop is not None and stop.is_set()):
            digest.update(piece[:size])
    return digest.hexdigest()


def _is_unchanged(first_look: Stamp, digest: str | None) -> bool:
    """Whether a file still has its identity and, where times cannot tell, its content."""
    try:
        now = stamp(first_look.path)
        if replace(now, taken_ns=first_look.taken_ns) != first_look:
            return False
        return digest is None or not first_look.is_recent or _sha256(first_look.path) == digest
    except (InputError, OSError):
        return False


def _missing(path: Path) -> InputError:
    """Name the files of the same folder that look most like the one that is missing."""
    if scheme := re.match(r"(https?|ftp):/", str(path)):
        return InputError(
            f"URLs of {scheme[1]} cannot be read",
            hint="download the file first; s3://, gs:// and hdfs:// can be read",
        )
    try:
        near = closest(path.name, os.listdir(path.parent))  # noqa: PTH208 - names only, undecodable ones too
    except OSError:
        return InputError(f"{shown(path)} does not exist, nor does its folder", hint="check the path")
    _, is_pair, value = path.name.partition("=")
    hint = (
        f"check the path; the rows of a domain are --target domain={value}" if is_pair else "check the path"
    )
    if near:
        hint = f"closest: {listed([shown(path.parent / name) for name in near])}"
    return InputError(f"{shown(path)} does not exist", hint=hint)
