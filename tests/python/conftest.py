"""Small rows with labels and domains."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

ROWS = 90


class Data(NamedTuple):
    """Rows, their labels and their domains."""

    X: Any
    y: Any
    domains: Any


@pytest.fixture(scope="session")
def data() -> Data:
    rng = np.random.default_rng(7)
    y = np.array(["cat", "dog", "eel"])[np.arange(ROWS) % 3]
    domains = np.arange(ROWS) // 3 % 2
    return Data(rng.normal(size=(ROWS, 4)).astype(np.float32) + domains[:, None], y, domains)


@pytest.fixture(scope="session")
def quick() -> dict[str, Any]:
    """Options that make a search short."""
    return {"restarts": 2, "effort": "fast"}
