"""Datasets for tests of more than one room."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Categories, Dataset

# Examples are the same on every run, and a busy machine is no failure.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# A shell's background job ignores interrupts, and so would every command that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def make_dataset() -> Callable[..., Dataset]:
    """Return a function that wraps features, and categories given by keyword, as a dataset."""

    def make(features: NDArray[Any], **columns: NDArray[Any]) -> Dataset:
        n, d = features.shape
        names = tuple(f"f{column}" for column in range(d))
        categories = {}
        for word, values in columns.items():
            found, codes = np.unique(values, return_inverse=True)
            categories[word] = Categories(codes.astype(np.int32), tuple(found.tolist()))
        return Dataset(np.ascontiguousarray(features), names, names, categories, np.arange(n), n)

    return make
