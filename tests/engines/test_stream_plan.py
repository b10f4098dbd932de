"""What reading in pieces asks for."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.row_groups import open_layout
from clustersplit_cli.engines.plan import LEAST_SAMPLED, plan_stream
from clustersplit_cli.errors import MemoryPlanError


@pytest.mark.parametrize("landmarks", [None, 400, 2000])
def test_the_memory_that_a_refusal_asks_for_is_enough(landmarks: int | None, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {f"f{j}": rng.normal(size=60_000).astype(np.float32) for j in range(16)}
    table = pa.table({**columns, "label": np.arange(60_000) % 3})
    pq.write_table(table, tmp_path / "many.parquet", row_group_size=10_000)
    layout = open_layout(ReadRequest(tmp_path / "many.parquet"))
    asked_for = set()
    for budget in range(10_000_000, 2_000_000_000, 10_000_000):
        try:
            plan = plan_stream(layout, landmarks, budget=budget, threads=2, reason="")
        except MemoryPlanError as error:
            found = re.search(r"--memory ([0-9.]+)GB", error.hint or "")
            assert found is not None
            asked_for.add(float(found[1]))
            assert ("--nystrom 500" in (error.hint or "")) is (landmarks == 2000)
            continue
        assert plan.memory.bytes <= budget
        assert plan.sample_rows >= LEAST_SAMPLED
    (enough,) = asked_for
    plan_stream(layout, landmarks, budget=round(enough * 1e9), threads=2, reason="")
