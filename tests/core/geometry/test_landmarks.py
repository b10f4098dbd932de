from __future__ import annotations

import numpy as np
import pytest

from clustersplit_cli.core.geometry import nystrom as module
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import prepare
from clustersplit_cli.core.geometry.nystrom import Centres
from clustersplit_cli.core.parallel import Workers


@pytest.mark.parametrize("name", ["rbf", "polynomial"])
@pytest.mark.parametrize("held", [np.float32, np.float64])
@pytest.mark.parametrize(("dtype", "error"), [(np.float32, 2e-6), (np.float64, 1e-12)])
def test_values_with_landmarks_are_those_of_the_kernel(
    name: str, dtype: type, error: float, held: type, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "VALUE_ROWS", 4)
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(50, 3)) + 100).astype(dtype)
    prepared = prepare(Features(X), name, "scale", 3, workers, rng)
    landmarks = Centres.of(prepared.kernel, prepared.features.take(np.array([3, 30, 41])))
    out = np.zeros((50, 3), held)
    summed = landmarks.compare(prepared.features, 20, 45, out[20:45])
    assert not out[:20].any() and not out[45:].any()
    rows = prepared.features.block(0, 50, np.float64)
    exact = prepared.kernel.tile(rows[20:45], rows[[3, 30, 41]])
    rounding = max(error, 1e-7 if held is np.float32 else 0.0) * np.abs(exact).max()
    np.testing.assert_allclose(out[20:45], exact, rtol=0, atol=rounding)
    np.testing.assert_allclose(summed, out[20:45].sum(axis=0, dtype=np.float64), rtol=1e-13)


def test_a_landmark_is_itself_and_far_rows_stay_out_of_the_subnormal_range(workers: Workers) -> None:
    X = np.geomspace(1e-3, 300.0, 40, dtype=np.float32)[:, None]
    prepared = prepare(Features(X), "rbf", 0.5, 3, workers, np.random.default_rng(0))
    landmarks = Centres.of(prepared.kernel, prepared.features.take(np.arange(40)))
    out = np.empty((40, 40), np.float32)
    landmarks.compare(prepared.features, 0, 40, out)
    assert (out <= 1).all() and (out**2 >= np.finfo(np.float32).tiny).all()
    np.testing.assert_allclose(np.diagonal(out), 1.0, rtol=0, atol=1e-6)
