"""Coordinates of rows of which only similarities or distances are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clustersplit_cli.core.geometry.coordinates import coordinates
from clustersplit_cli.errors import InputError
from clustersplit_cli.similarity import DISTANCES, SIMILARITIES


def points(seed: int, n: int, d: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(n, d))


def squared(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(((rows[:, None] - rows[None]) ** 2).sum(axis=2))


def made(matrix: np.ndarray[Any, Any], what: str) -> tuple[np.ndarray[Any, Any], tuple[tuple[str, str], ...]]:
    return coordinates(matrix.copy(), what, "m.npy", np.arange(len(matrix)))


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), d=st.integers(1, 50))
def test_inner_products_of_the_coordinates_are_the_similarities(seed: int, n: int, d: int) -> None:
    rows = points(seed, n, d)
    similarities = rows @ rows.T
    found, notes = made(similarities, SIMILARITIES)
    assert notes == ()
    np.testing.assert_allclose(found @ found.T, similarities, atol=1e-8 * similarities.max())
    assert found.shape[1] <= min(n, d)


@given(seed=st.integers(0, 10**6), n=st.integers(2, 40), d=st.integers(1, 50))
def test_distances_of_the_coordinates_are_the_distances(seed: int, n: int, d: int) -> None:
    distances = squared(points(seed, n, d))
    found, notes = made(np.sqrt(distances), DISTANCES)
    assert notes == ()
    np.testing.assert_allclose(squared(found), distances, atol=1e-7 * distances.max())


def test_a_matrix_wider_than_a_tile_is_factored_too() -> None:
    rows = points(0, 1500, 6).astype(np.float32)
    found, notes = made(rows @ rows.T, SIMILARITIES)
    assert (notes, found.dtype) == ((), np.float32)
    np.testing.assert_allclose(found @ found.T, rows @ rows.T, atol=1e-4)


def test_similarities_that_are_not_positive_are_raised_by_as_little_as_will_do() -> None:
    rows = points(1, 60, 4)
    found, notes = made(rows @ rows.T - 0.25 * np.eye(60), SIMILARITIES)
    ((code, said),) = notes
    assert code == "not_positive" and "an eigenvalue of -0.25" in said
    apart = found @ found.T - rows @ rows.T + 0.25 * np.eye(60)
    raised = np.diag(apart)
    np.testing.assert_allclose(apart - np.diag(raised), 0, atol=1e-8)
    np.testing.assert_allclose(raised, raised[0])
    assert 0.25 <= raised[0] < 0.26


def test_distances_that_no_points_have_are_raised_alike() -> None:
    distances = squared(points(2, 30, 3)) + 0.5
    distances[0, 1] = distances[1, 0] = distances[0, 1] + 4
    np.fill_diagonal(distances, 0)
    found, notes = made(np.sqrt(distances), DISTANCES)
    added = squared(found) - distances
    off = added[~np.eye(30, dtype=bool)]
    np.testing.assert_allclose(off, off[0], atol=1e-8)
    assert off[0] > 0 and f"{off[0]:.3g} is added to every squared distance" in notes[0][1]


@pytest.mark.parametrize(
    ("changed", "what", "said"),
    [
        ({(1, 2): 9.0}, SIMILARITIES, "not symmetric: row 1, column 2 is 9"),
        ({(1, 1): -9.0}, SIMILARITIES, "similarity of row 1 of m.npy with itself is -9"),
        ({}, DISTANCES, "from itself"),
    ],
)
def test_what_cannot_be_is_named_with_its_place(
    changed: dict[tuple[int, int], float], what: str, said: str
) -> None:
    rows = points(3, 8, 3)
    matrix = rows @ rows.T
    for place, value in changed.items():
        matrix[place] = value
    with pytest.raises(InputError, match=said):
        made(matrix, what)


def test_distances_and_similarities_that_are_mixed_up_are_told_apart() -> None:
    distances = np.sqrt(squared(points(4, 8, 3)))
    with pytest.raises(InputError, match="holds distances") as told:
        made(distances, SIMILARITIES)
    assert told.value.hint == "add --distances"
    negative = distances.copy()
    negative[2, 5] = negative[5, 2] = -1
    with pytest.raises(InputError, match=r"distance of rows 2 and 5 in m\.npy is -1"):
        made(negative, DISTANCES)


def test_a_matrix_far_from_any_space_is_refused() -> None:
    signs = np.sign(points(5, 60, 60))
    signs = np.triu(signs, 1) + np.triu(signs, 1).T + np.eye(60)
    with pytest.raises(InputError, match="least eigenvalue"):
        made(signs, SIMILARITIES)


def test_rows_are_named_by_their_positions_in_the_input() -> None:
    rows = points(6, 8, 3)
    matrix = rows @ rows.T
    matrix[1, 2] += 5
    with pytest.raises(InputError, match="row 11, column 12"):
        coordinates(matrix, SIMILARITIES, "m.npy", np.arange(10, 18))
