"""Variables this process sets for itself and for CBC, and that commands of the user should not see."""

from __future__ import annotations

import os

BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_ours: set[str] = set()


def keep_blas_to_one_thread() -> None:
    """Let BLAS start no threads, in this process and in CBC; to be called before numpy is imported.

    Our own threads share the work, and those of BLAS would wait for theirs by spinning, on cores that are
    wanted. Who has set the variable knows why.
    """
    if BLAS_THREADS not in os.environ:
        os.environ[BLAS_THREADS] = "1"
        _ours.add(BLAS_THREADS)


def as_the_user_left_it() -> dict[str, str]:
    """The environment without what was set here."""
    return {name: value for name, value in os.environ.items() if name not in _ours}
