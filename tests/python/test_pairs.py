"""Similarities and distances in Python, and rows that are nearly the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit import ClusterKFold, Split, cluster_folds, cluster_split, verify

QUICK: dict[str, Any] = {"effort": "fast", "restarts": 3}


@pytest.fixture(scope="module")
def rows() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(60, 4))


@pytest.fixture(scope="module")
def distances(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(axis=2)))


Y = np.repeat([0, 1, 2], 20)


def test_similarities_and_distances_give_the_split_of_the_rows(rows: Any, distances: Any) -> None:
    linear = cluster_split(rows, Y, kernel="linear", **QUICK)
    given = rows @ rows.T
    kept = given.copy()
    of_similarities = cluster_split(given, Y, kernel="precomputed", **QUICK)
    assert of_similarities.val.tolist() == linear.val.tolist()
    np.testing.assert_array_equal(given, kept)
    rbf = cluster_split(rows, Y, **QUICK)
    assert cluster_split(distances, Y, distances=True, **QUICK).val.tolist() == rbf.val.tolist()
    folds = cluster_folds(given, Y, k=3, kernel="precomputed", **QUICK)
    by_rows = cluster_folds(rows, Y, k=3, kernel="linear", **QUICK)
    assert [fold.tolist() for fold in folds.parts.values()] == [
        fold.tolist() for fold in by_rows.parts.values()
    ]


def test_splitters_take_distances(rows: Any, distances: Any) -> None:
    found = [val.tolist() for _, val in ClusterKFold(3, distances=True, **QUICK).split(distances, Y)]
    assert found == [val.tolist() for _, val in ClusterKFold(3, **QUICK).split(rows, Y)]


def test_a_split_of_distances_is_saved_verified_and_loaded(distances: Any, tmp_path: Path) -> None:
    split = cluster_split(distances, Y, distances=True, groups="near-duplicates=0.999", **QUICK)
    assert verify(split).passed
    split.save(tmp_path / "run")
    assert verify(tmp_path / "run").passed
    loaded = Split.load(tmp_path / "run")
    assert loaded.report.config["distances"] is True
    loaded.to_html(tmp_path / "page.html", distances, Y)
    assert (tmp_path / "page.html").stat().st_size > 0


def test_near_duplicates_stay_together(rows: Any) -> None:
    doubled = np.concatenate([rows, 3 * rows])
    split = cluster_split(doubled, np.tile(Y, 2), groups="near-duplicates=0.9999", **QUICK)
    assert set(split.val % 60) == set(split.val[split.val < 60])
    assert verify(split, near_duplicates=0.9999).passed
    apart = np.arange(60), np.arange(60, 120)
    assert not verify(apart, doubled, h=0.5, near_duplicates=0.9999).passed
    assert verify(apart, doubled, h=0.5).passed


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"kernel": "precomputed"}, "X has 60 rows and 4 feature columns"),
        ({"distances": True, "kernel": "laplacian"}, "kernel='laplacian' needs features"),
        ({"distances": True, "drop_invalid": True}, "60 rows and 4 feature columns"),
        ({"groups": "near-duplicates=3"}, "names no similarity"),
    ],
)
def test_what_cannot_be_is_told_in_the_words_of_python(rows: Any, arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as told:
        cluster_split(rows, Y, **arguments)
    assert "--" not in str(told.value)
