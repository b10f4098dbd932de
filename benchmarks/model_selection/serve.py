"""Trainings without the start: a process that has everything loaded forks itself for every request.

Importing PyTorch and reading the features takes longer than training a small head. `python -m
benchmarks.model_selection.serve SOCKET FEATURES` does both once; `ask.py SOCKET ...` takes the place of
`train.py ...` and only passes its words on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch

from benchmarks.model_selection import train


def answer(connection: socket.socket) -> None:
    """Train what the request says, with its words on its own streams; send back the exit code."""
    code = 1
    try:
        words = json.loads(connection.makefile("rb").readline())
        code = train.main(words)
    except Exception:
        connection.sendall(traceback.format_exc().encode())
    finally:
        connection.sendall(f"\nexit {code}\n".encode())
        connection.close()


def main() -> int:
    """Serve until terminated."""
    path, features = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)  # before any work, so that there are no threads to lose in a fork
    train.read(features.resolve())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the children
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(64)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                server.close()
                answer(connection)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    raise SystemExit(main())
