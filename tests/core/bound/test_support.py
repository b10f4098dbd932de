"""How far splits reach: exactly along one direction, never too little around several."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from clustersplit_cli.core.bound.support import ConeCover, SupportFunction
from clustersplit_cli.core.constraints.cells import Cells
from clustersplit_cli.core.constraints.quotas import ValidationQuotas


def limits_of(sizes: list[int], quotas: list[int], rng: np.random.Generator) -> ValidationQuotas:
    codes = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    cells = Cells(codes, tuple({"cell": g} for g in range(len(sizes))), np.array(sizes))
    return ValidationQuotas(cells, np.array(quotas), np.array(quotas), np.array(quotas))


def all_places(limits: ValidationQuotas, directions: np.ndarray) -> np.ndarray:
    """U'w of every split, by enumeration; w = z less its cell means."""
    codes, n = limits.cells.codes, len(directions)
    choices = [
        list(combinations(np.flatnonzero(codes == cell), quota)) for cell, quota in enumerate(limits.target)
    ]
    places = []
    for chosen in product(*choices):
        members = np.zeros(n, dtype=bool)
        members[[row for rows in chosen for row in rows]] = True
        z = np.where(members, 1.0 / members.sum(), -1.0 / (~members).sum())
        means = np.bincount(codes, z) / np.bincount(codes)
        places.append(directions.T @ (z - means[codes]))
    return np.array(places)


def centred(limits: ValidationQuotas, k: int, rng: np.random.Generator) -> np.ndarray:
    directions = rng.normal(size=(limits.n, k)) * rng.gamma(1.0, size=k)
    codes = limits.cells.codes
    means = np.stack([np.bincount(codes, column) / np.bincount(codes) for column in directions.T], axis=1)
    return directions - means[codes]


SHAPES = [([9], [2]), ([4, 4, 3], [1, 1, 2]), ([5, 5, 2, 1], [2, 3, 0, 1]), ([3, 3, 3], [1, 1, 1])]


@pytest.mark.parametrize(("sizes", "quotas"), SHAPES)
def test_the_support_along_a_direction_is_that_of_the_farthest_split(
    sizes: list[int], quotas: list[int]
) -> None:
    rng = np.random.default_rng(len(sizes))
    limits = limits_of(sizes, quotas, rng)
    directions = centred(limits, 3, rng)
    towards = rng.normal(size=(3, 40))
    farthest = (all_places(limits, directions) @ towards).max(axis=0)
    assert SupportFunction(limits, directions, 0.0).along(towards) == pytest.approx(
        farthest, rel=1e-9, abs=1e-12
    )
    assert (SupportFunction(limits, directions, 1e-3).along(towards) > farthest + 1e-4).all()


def test_many_directions_are_looked_along_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    limits = limits_of([9, 6], [2, 3], rng)
    support, towards = SupportFunction(limits, centred(limits, 2, rng), 0.0), rng.normal(size=(2, 25))
    whole = support.along(towards)
    monkeypatch.setattr("clustersplit_cli.core.bound.support.AT_ONCE", 60)
    assert support.along(towards).tolist() == pytest.approx(whole.tolist(), rel=1e-12)


@pytest.mark.parametrize(("sizes", "quotas"), SHAPES)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_no_split_is_beyond_the_cones_and_refining_brings_it_nearer(
    sizes: list[int], quotas: list[int], k: int
) -> None:
    rng = np.random.default_rng(10 * k + len(sizes))
    limits = limits_of(sizes, quotas, rng)
    directions = centred(limits, k, rng)
    places = all_places(limits, directions)
    cover = ConeCover(SupportFunction(limits, directions, 0.0), k)
    weights = rng.gamma(1.0, size=(k, 30)) * (rng.random((k, 30)) > 0.2)
    pulls = rng.normal(size=k) * 0.1 * np.abs(places).max()
    true = (places**2 @ weights + 2.0 * (places @ pulls)[:, None]).max(axis=0)
    begun = cover.largest(weights, pulls)
    for run in range(12):
        assert (cover.largest(weights, pulls) >= true - 1e-9 * np.abs(true)).all()
        before = cover.largest(weights[:, :1], pulls)[0]
        cover.refine(weights[:, 0], pulls)
        assert cover.largest(weights[:, :1], pulls)[0] <= before * (1 + 1e-12), run
    found = cover.largest(weights, pulls)
    assert (found >= true - 1e-9 * np.abs(true)).all()
    assert found[0] - true[0] < 0.5 * (begun[0] - true[0]) + 1e-9
    assert cover.n_directions > 2 * k
