"""Read damaged copies of a file, one after the other, and print the number of each before it is read.

Run as a program of its own, so that a library that ends the process is seen, with the file, the first
number and the number after the last one as its arguments.
"""

from __future__ import annotations

import resource
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from clustersplit_cli.data import readers
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.pins import _id_words
from clustersplit_cli.data.row_groups import open_layout, read_batches
from clustersplit_cli.data.rows import open_rows
from clustersplit_cli.data.runs import read_indices
from clustersplit_cli.errors import ClusterSplitError

SECONDS, BYTES = 30, 4 << 30


def damaged(content: bytes, number: int) -> bytes:
    """Return the content with some of its bytes changed, cut out, repeated or exchanged."""
    rng = np.random.default_rng(number)
    changed = bytearray(content)
    # Headers and footers say where everything is: half of the damage goes there.
    near = rng.integers(min(600, len(content)))
    place = int(rng.choice([rng.integers(len(content)), near, len(content) - 1 - near], p=[0.5, 0.2, 0.3]))
    length = int(rng.choice([1, 1, 2, 4, 8, 64, 1000]))
    match number % 8:
        case 0 | 1 | 2:
            changed[place] ^= 1 << int(rng.integers(8))
        case 3:
            changed[place : place + length] = rng.bytes(len(changed[place : place + length]))
        case 4:
            changed[place : place + length] = bytes([int(rng.choice([0, 0x7F, 0x80, 0xFF]))]) * length
        case 5:
            del changed[place : place + length]
        case 6:
            del changed[place:]
        case _:
            changed[place:place] = changed[place : place + length]
    return bytes(changed)


def read_in_every_way(path: Path) -> None:
    """Read a file in all ways that commands do."""
    request = ReadRequest(path, id_column="id")

    def in_batches() -> None:
        layout = open_layout(ReadRequest(path))
        names = [*layout.features.names, *layout.family.values()]
        for batch in read_batches(layout, layout.groups, names, 0, layout.n_rows):
            batch.features()

    ways: list[Callable[[], object]] = [
        lambda: readers.peek(request),
        lambda: readers.load(request).files,
        lambda: list(open_rows(path).batches),
        lambda: read_indices(path),
        lambda: _id_words(path),
    ]
    for way in (*ways, in_batches) if path.suffix == ".parquet" else ways:
        with suppress(ClusterSplitError):
            way()


def main() -> None:
    """Read the copies; print what any of them raised that is no message for the user."""
    path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    content = path.read_bytes()
    copy = path.with_name(f"damaged-{first}{path.suffix}")
    for number in range(first, last):
        print(number, flush=True)  # noqa: T201
        copy.write_bytes(damaged(content, number))
        signal.alarm(SECONDS)
        try:
            read_in_every_way(copy)
        except Exception:
            print(traceback.format_exc())  # noqa: T201
        signal.alarm(0)
    print("done")  # noqa: T201


if __name__ == "__main__":
    main()
