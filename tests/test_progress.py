from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from clustersplit_cli.progress import Stopwatch, peak_memory


def test_steps_add_up_under_their_names() -> None:
    watch = Stopwatch()
    for name in ("read", "search", "read"):
        with watch.step(name):
            pass
    assert list(watch.steps) == ["read", "search"]
    assert 0 <= sum(watch.steps.values()) <= watch.total


def test_the_peak_grows_with_what_is_touched() -> None:
    before = peak_memory()
    np.ones(before // 8 + 40_000_000 // 8)
    assert peak_memory() >= before + 40_000_000 - 10_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only there a child inherits a count")
def test_the_peak_is_not_that_of_the_process_that_started_this_one() -> None:
    ballast = np.ones(50_000_000)  # 400 MB here, none there
    code = "from clustersplit_cli.progress import peak_memory; print(peak_memory())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 200_000_000 < ballast.nbytes
