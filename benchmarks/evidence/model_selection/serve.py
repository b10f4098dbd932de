"""Trainings without the start: a process that has everything loaded forks itself for every request.

Importing PyTorch and reading the features takes longer than training a small head. `python -m
benchmarks.evidence.model_selection.serve SOCKET FEATURES` does both once; `ask.py SOCKET ...` takes the
place of `train.py ...` and only passes its words on.
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

from benchmarks.evidence.model_selection import train
from benchmarks.evidence.model_selection.heads import ALGORITHMS, Batches, Head


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


def warm_up() -> None:
    """Two steps of every algorithm: what PyTorch loads on first use takes longer than a training."""
    chance = torch.Generator().manual_seed(0)
    params = {"steps": 2, "lr": 1e-3, "lr_d": 1e-3, "weight_decay": 0.0, "weight_decay_d": 0.0, "beta1": 0.5}
    params |= {"lambda": 1.0, "d_steps_per_g_step": 1, "grad_penalty": 1.0, "coral_penalty": 1.0}
    for algorithm in ALGORITHMS.values():
        rows = [Batches(torch.randn(8, 4), torch.zeros(8, dtype=torch.int64), 4, chance) for _ in range(2)]
        algorithm(Head(4, 2), rows, [], params)


def main() -> int:
    """Serve until terminated."""
    path, features = Path(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)  # before any work, so that there are no threads to lose in a fork
    train.read(features.resolve())
    warm_up()
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
