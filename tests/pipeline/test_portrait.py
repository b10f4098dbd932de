"""The map of the rows and what drives the shift, against definitions."""

from __future__ import annotations

import numpy as np
import pytest

from clustersplit_cli.core.parallel import pool
from clustersplit_cli.data.dataset import Categories, Dataset
from clustersplit_cli.options import CheckedOptions, SplitOptions, check_options
from clustersplit_cli.pipeline import portrait as portray
from clustersplit_cli.pipeline.context import PartitionOptions
from clustersplit_cli.pipeline.local.engine import partition, prepared_partition, prepared_split
from clustersplit_cli.reports.portrait import Portrait

N, D = 90, 5


def options(**changes: str) -> CheckedOptions:
    return check_options(SplitOptions(**changes))  # type: ignore[arg-type]


@pytest.fixture
def dataset() -> Dataset:
    rng = np.random.default_rng(1)
    labels = (np.arange(N) % 3).astype(np.int32)
    return Dataset(
        features=rng.normal(size=(N, D)) * [5, 3, 1, 1, 1],
        feature_names=tuple("abcde"),
        feature_columns=tuple("abcde"),
        categories={"label": Categories(labels, ("x", "y", "z"))},
        rows=np.arange(N) * 2,
        n_rows=2 * N,
    )


def portrait_of(dataset: Dataset, members: np.ndarray, **changes: str) -> Portrait:
    with prepared_split(dataset, options(**changes)) as context:
        return context.portrait(context.measure(members))


def test_the_map_of_a_linear_kernel_is_pca(dataset: Dataset) -> None:
    members = np.arange(N) < 18
    drawn = portrait_of(dataset, members, kernel="linear").map
    centred = dataset.features - dataset.features.mean(axis=0)
    _, singular, right = np.linalg.svd(centred, full_matrices=False)
    for axis, found in enumerate((drawn.x, drawn.y)):
        expected = centred @ right[axis]
        expected *= np.sign(expected[members].mean())
        np.testing.assert_allclose(found, expected, atol=1e-3)
    np.testing.assert_allclose(drawn.explained, (singular**2 / (singular**2).sum())[:2], rtol=1e-6)
    assert drawn.rows == tuple(range(0, 2 * N, 2))


def test_the_witness_is_the_difference_of_mean_kernel_values(dataset: Dataset) -> None:
    members = np.arange(N) % 4 == 0
    portrait = portrait_of(dataset, members, gamma="0.05")
    distances = ((dataset.features[:, None] - dataset.features[None]) ** 2).sum(axis=2)
    kernel = np.exp(-0.05 * distances)
    expected = kernel[:, members].mean(axis=1) - kernel[:, ~members].mean(axis=1)
    np.testing.assert_allclose(portrait.map.witness, expected, atol=1e-5)
    order = np.argsort(-expected)
    assert [row.row for row in portrait.typical[1]] == (2 * order[: portray.ROWS_SHOWN]).tolist()
    assert [row.row for row in portrait.typical[0]] == (2 * order[::-1][: portray.ROWS_SHOWN]).tolist()
    assert portrait.typical[1][0].values == {"label": "xyz"[order[0] % 3]}


def test_the_features_that_differ_most_come_first(dataset: Dataset) -> None:
    members = dataset.features[:, 3] > np.quantile(dataset.features[:, 3], 0.8)
    first = portrait_of(dataset, members).features[0]
    column = dataset.features[:, 3]
    assert first.name == "d"
    assert first.shifts == (pytest.approx((column[members].mean() - column[~members].mean()) / column.std()),)


def test_the_random_splits_are_those_of_the_report(dataset: Dataset) -> None:
    split = partition(dataset, options(), with_portrait=True)
    assert isinstance(split.portrait, Portrait)
    random = split.report.baselines.random
    assert len(split.portrait.random) == random.n
    assert np.mean(split.portrait.random) == pytest.approx(random.mmd_mean)
    again = portrait_of(dataset, np.isin(dataset.rows, split.parts.val))
    assert again == split.portrait


def test_a_map_of_many_rows_is_a_sample(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portray, "MAP_ROWS", 30)
    drawn = portrait_of(dataset, np.arange(N) < 18).map
    assert (len(drawn.x), drawn.n_rows) == (30, N)
    assert set(drawn.rows) <= set(range(0, 2 * N, 2))
    assert list(drawn.rows) == sorted(set(drawn.rows))


def test_one_direction_is_enough_for_a_map() -> None:
    with pool(1) as workers:
        _, directions, explained = portray.leading_directions(np.array([[1.0], [2.0], [4.0]]), workers)
    assert abs(directions[0, 0]) == 1.0
    assert directions[0, 1] == 0.0
    assert explained == (1.0, 0.0)


def test_parts_are_portrayed_against_definitions(dataset: Dataset) -> None:
    from clustersplit_cli.core.search.partition import evaluate_partition, measure, rest_squared
    from clustersplit_cli.pipeline.portrait import ROWS_PER_PART

    found = partition(dataset, options(gamma="0.05"), PartitionOptions(folds=3), with_portrait=True)
    portrait, labels = found.portrait, found.parts.labels
    assert portrait is not None
    distances = ((dataset.features[:, None] - dataset.features[None]) ** 2).sum(axis=2)
    kernel = np.exp(-0.05 * distances)
    own = labels[:, None] == labels[None]
    expected = np.where(own, kernel, 0).sum(1) / own.sum(1) - np.where(own, 0, kernel).sum(1) / (~own).sum(1)
    np.testing.assert_allclose(portrait.map.witness, expected, atol=1e-4)
    assert portrait.map.part == tuple(labels.tolist())
    first = np.flatnonzero(labels == 0)
    best = first[np.argsort(-expected[first])[:ROWS_PER_PART]]
    assert [row.row for row in portrait.typical[0]] == (2 * best).tolist()
    for feature in portrait.features:
        column = dataset.features[:, "abcde".index(feature.name)]
        for part, shift in enumerate(feature.shifts):
            inside = labels == part
            assert shift == pytest.approx((column[inside].mean() - column[~inside].mean()) / column.std())
    assert np.shape(portrait.random) == (20, 3)
    with prepared_partition(dataset, options(gamma="0.05"), PartitionOptions(folds=3)) as context:
        geometry = context.kernel.geometry
        measured = evaluate_partition(geometry, labels, 3)
        state = measure(geometry, labels[:, None], 3, np.float64)
        np.testing.assert_allclose(rest_squared(state)[0], measured.rest_squared, rtol=1e-6)
        again = context.portrait(context.measure(labels))
    assert again == portrait


@pytest.mark.parametrize("folds", [None, 3])
def test_values_and_distances_within_classes_are_those_of_their_definitions(
    dataset: Dataset, folds: int | None
) -> None:
    if folds is None:
        labels = (np.arange(N) % 5 == 0).astype(np.int64)
        found: Portrait = portrait_of(dataset, labels.astype(bool), gamma="0.05")
    else:
        made = partition(dataset, options(gamma="0.05"), PartitionOptions(folds=folds), with_portrait=True)
        assert made.portrait is not None
        found, labels = made.portrait, made.parts.labels
    k = folds or 2
    distances = ((dataset.features[:, None] - dataset.features[None]) ** 2).sum(axis=2)
    kernel = np.exp(-0.05 * distances)
    codes = dataset.categories["label"].codes
    assert (found.class_word, [each.value for each in found.classes]) == ("label", ["x", "y", "z"])
    for code, each in enumerate(found.classes):
        assert each.sizes == tuple(int((labels[codes == code] == part).sum()) for part in range(k))
        for part, mmd in zip([1] if folds is None else range(k), each.mmd, strict=True):
            one, other = (codes == code) & (labels == part), (codes == code) & (labels != part)
            squared = (
                kernel[np.ix_(one, one)].mean()
                + kernel[np.ix_(other, other)].mean()
                - 2 * kernel[np.ix_(one, other)].mean()
            )
            assert mmd == pytest.approx(squared**0.5, rel=1e-5)
    for shown, feature in zip(found.distributions, found.features, strict=False):
        assert shown.name == feature.name
        values = dataset.features[:, "abcde".index(shown.name)]
        inside = np.clip(values, shown.low, np.nextafter(shown.high, -np.inf))
        edges = np.linspace(shown.low, shown.high, len(shown.shares[0]) + 1)
        for part, shares in enumerate(shown.shares):
            counts, _ = np.histogram(inside[labels == part], edges)
            np.testing.assert_allclose(shares, counts / counts.sum(), atol=1e-12)


def test_a_side_without_rows_of_a_class_has_no_distance(dataset: Dataset) -> None:
    members = (dataset.categories["label"].codes == 0) & (np.arange(N) < 30)
    found = portrait_of(dataset, members)
    assert [each.mmd[0] is None for each in found.classes] == [False, True, True]
