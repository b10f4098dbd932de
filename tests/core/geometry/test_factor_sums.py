"""Everything about a split from sums of factors, against the formulas on the kernel itself."""

from __future__ import annotations

import numpy as np
import pytest

from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas
from clustersplit_cli.core.geometry.factored import FactoredKernel
from clustersplit_cli.core.geometry.nystrom import low_rank_geometry
from clustersplit_cli.core.parallel import pool
from clustersplit_cli.core.search.problem import Problem, evaluate


@pytest.mark.parametrize("mixed", [False, True])
def test_sums_of_factors_give_what_the_kernel_gives(mixed: bool) -> None:
    rng = np.random.default_rng(0)
    factors, mixing = rng.normal(size=(60, 5)), rng.normal(size=(5, 3)) if mixed else None
    rows = factors if mixing is None else factors @ mixing
    members = rng.random(60) < 0.3
    n_val = int(members.sum())
    one = np.array([60])
    limits = ValidationQuotas(Cells(np.zeros(60, np.int64), ({},), one), one // 3, one // 3, one // 3)
    with pool(1) as workers:
        found = evaluate(Problem(low_rank_geometry(rows, workers), limits), members)
    kernel = FactoredKernel(60, factors.sum(axis=0), mixing, float((rows**2).sum()), 0.0)
    state = kernel.state(factors[members].sum(axis=0), n_val)
    assert state.n_val, state.n_train == (n_val, 60 - n_val)
    for mine, theirs in (
        (state.mmd_squared, found.mmd_squared),
        (state.psi, found.psi),
        (kernel.ssq_total, found.ssq_total),
        (state.training_cost, found.training_cost),
        (state.own_cost, found.training_cost + found.difference[members].sum()),
    ):
        assert mine == pytest.approx(theirs, rel=1e-12)
    np.testing.assert_allclose(-2.0 * factors @ state.weights + state.shift, found.difference, rtol=1e-10)
    assert kernel.residual(state) < 1e-12
    assert state.own_cost == pytest.approx(state.psi, rel=1e-12)
