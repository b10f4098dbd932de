"""Small problems for the tests of core."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clustersplit_cli.core.parallel import Workers, pool


@pytest.fixture(scope="session")
def workers() -> Iterator[Workers]:
    with pool(2) as opened:
        yield opened
