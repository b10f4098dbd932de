from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from clustersplit_cli.core.parallel import TURN_SECONDS, _QuickTurns, available_cores, pool, tiles


@pytest.mark.parametrize("count", [1, 2, 3])
def test_results_come_in_the_order_of_the_jobs(count: int) -> None:
    with pool(count) as workers:
        assert list(workers.map(lambda job: job * job, range(50))) == [job * job for job in range(50)]


def test_every_job_runs_once_and_progress_counts_them() -> None:
    ran, heard, lock = [], [], threading.Lock()

    def task(job: int) -> None:
        with lock:
            ran.append(job)

    with pool(3) as workers:
        workers.run(task, range(40), heard.append)
    assert sorted(ran) == list(range(40))
    assert heard[-1] == 40 and heard == sorted(heard)


@pytest.mark.parametrize("count", [1, 2])
def test_an_error_in_a_job_reaches_the_caller(count: int) -> None:
    def task(job: int) -> int:
        if job == 7:
            raise ArithmeticError("seven")
        return job

    with pool(count) as workers:
        with pytest.raises(ArithmeticError, match="seven"):
            list(workers.map(task, range(20)))
        with pytest.raises(ArithmeticError, match="seven"):
            workers.run(task, range(20))


def test_blas_has_one_thread_inside_the_pool() -> None:
    np.ones((2, 2)) @ np.ones((2, 2))
    with pool(2):
        assert {info["num_threads"] for info in threadpool_info() if info["user_api"] == "blas"} == {1}


def test_cores_follow_the_environment_downwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    cores = available_cores()
    for text, expected in (("1", 1), ("100000", cores), ("0", cores), ("many", cores)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert available_cores() == expected


def test_tiles_cover_the_range_in_order() -> None:
    assert tiles(10, 4) == [(0, 4), (4, 8), (8, 10)]
    assert tiles(0, 4) == []
    assert tiles(4, 4) == [(0, 4)]


def test_threads_take_quick_turns_until_the_last_pool_is_closed() -> None:
    before, turns = sys.getswitchinterval(), _QuickTurns()
    try:
        sys.setswitchinterval(0.004)
        with ExitStack() as one, ExitStack() as other:
            one.enter_context(turns)
            other.enter_context(turns)
            assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
            one.close()
            assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
            with pytest.raises(ZeroDivisionError), turns:
                raise ZeroDivisionError
        assert sys.getswitchinterval() == pytest.approx(0.004)
    finally:
        sys.setswitchinterval(before)


def test_a_pool_takes_quick_turns() -> None:
    with pool(2):
        assert sys.getswitchinterval() <= TURN_SECONDS + 1e-9
