from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from clustersplit_cli.data.dataset import Dataset
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.baseline import baseline
from clustersplit_cli.pipeline.local.engine import opened_local, partition, prepared_split
from clustersplit_cli.pipeline.notices import notices
from clustersplit_cli.pipeline.run import assess

Maker = Callable[..., Dataset]


def warnings_of(dataset: Dataset, **options: Any) -> dict[str, str]:
    report = partition(dataset, check_options(SplitOptions(certify="never", effort="fast", **options))).report
    assert len({notice.code for notice in report.warnings}) == len(report.warnings)
    return {notice.code: notice.message for notice in report.warnings}


@pytest.fixture(scope="module", name="X")
def features() -> NDArray[Any]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    X[:60] += 2
    return X


@pytest.fixture(scope="module")
def labels() -> NDArray[Any]:
    return np.repeat(["a", "b"], 100)


def test_a_sound_split_has_no_warnings(make_dataset: Maker, X: NDArray[Any], labels: NDArray[Any]) -> None:
    for kernel in ("rbf", "linear", "cosine", "polynomial"):
        assert warnings_of(make_dataset(X, label=labels), kernel=kernel) == {}


def test_a_kernel_close_to_the_identity_is_pointed_out(make_dataset: Maker, X: NDArray[Any]) -> None:
    found = warnings_of(make_dataset(X), gamma="1e5")
    assert "almost the identity (gamma=1e+05" in found["degenerate_kernel"]
    assert "--gamma scale" in found["degenerate_kernel"]


def test_a_kernel_close_to_constant_is_pointed_out(make_dataset: Maker, X: NDArray[Any]) -> None:
    found = warnings_of(make_dataset(X), gamma="1e-6")
    assert "almost constant (gamma=1e-06" in found["degenerate_kernel"]
    assert warnings_of(make_dataset(X * 1e-3), kernel="linear") == {}  # small values are no fault there


def test_uneven_spreads_matter_to_an_rbf_kernel_without_standardizing(
    make_dataset: Maker, X: NDArray[Any]
) -> None:
    X = X / X.std(axis=0)
    uneven, even = make_dataset(X * [1, 1, 3]), make_dataset(X * [1, 1, 1.9])
    assert warnings_of(uneven)["uneven_spreads"].startswith(
        "few of the 3 columns that vary have most of the variance (f2 81.8 %, f0 9.09 %, f1 9.09 %)"
    )
    assert "--standardize zscore" in warnings_of(uneven)["uneven_spreads"]
    assert "uneven_spreads" not in warnings_of(even)
    assert "uneven_spreads" not in warnings_of(uneven, standardize="zscore")
    assert "uneven_spreads" not in warnings_of(uneven, standardize="l2")
    assert "uneven_spreads" not in warnings_of(uneven, kernel="linear")
    constant = make_dataset(np.column_stack([X, np.full(200, 0.1)]))
    assert warnings_of(constant) == {}


def test_few_of_many_columns_may_have_most_of_the_variance_between_them(make_dataset: Maker) -> None:
    X = np.random.default_rng(0).normal(size=(300, 40))
    two = make_dataset(X * np.r_[20.0, 20.0, np.ones(38)])
    assert warnings_of(two)["uneven_spreads"].startswith("few of the 40 columns")
    decaying = make_dataset(X * 0.95 ** np.arange(40))  # as after a PCA
    assert warnings_of(decaying) == {}
    seven = make_dataset(X[:, :7] * np.sqrt([0.46, 0.48, 0.002, 0.025, 1e-4, 0.014, 0.02]))
    assert "uneven_spreads" in warnings_of(seven)
    assert "uneven_spreads" not in warnings_of(make_dataset(X[:, :2] * [1, 2]))


def test_a_column_that_few_rows_differ_in_is_named_where_it_would_weigh_as_much_as_the_others(
    make_dataset: Maker,
) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_001, 5))
    X[:, 2] = 0.0
    X[77, 2] = 255.0
    dataset = make_dataset(X, label=rng.integers(0, 2, 20_001))
    quick = {"nystrom": "20", "restarts": 1}
    found = warnings_of(dataset, standardize="zscore", **quick)["nearly_constant_columns"]
    assert found.startswith("1 column hardly varies but in few rows (f2), and --standardize zscore gives it")
    assert "nearly_constant_columns" not in warnings_of(dataset, **quick)
    X[77, 2], X[10_000:, 2] = 0.0, 1.0  # now half of the rows differ
    assert warnings_of(make_dataset(X[:, :]), standardize="zscore", **quick).keys() <= {"degenerate_kernel"}


def test_cells_too_small_for_a_validation_row_are_named(make_dataset: Maker, X: NDArray[Any]) -> None:
    labels = np.array(["big"] * 198 + ["small"] * 2)
    found = warnings_of(make_dataset(X, label=labels))
    assert list(found) == ["cells_without_validation"]
    assert found["cells_without_validation"] == (
        "1 of 2 cells is too small for a validation row at h=0.2 (label=small: 2 rows); "
        "try --rounding balanced, or fewer columns in --stratify"
    )
    # With room for a row there is nothing to say.
    assert "cells_without_validation" not in warnings_of(make_dataset(X, label=labels), tolerance="0.3")


def test_cells_wholly_in_validation_are_named(make_dataset: Maker, X: NDArray[Any]) -> None:
    labels = np.array(["big"] * 199 + ["small"])
    found = warnings_of(make_dataset(X, label=labels), holdout="0.5")
    assert list(found) == ["cells_without_training"]
    assert (
        "1 of 2 cells is wholly in validation at h=0.5 (label=small: 1 rows)"
        in found["cells_without_training"]
    )


def test_no_more_than_three_cells_are_named(make_dataset: Maker, X: NDArray[Any]) -> None:
    labels = np.array(["big"] * 192 + ["v", "v", "w", "w", "x", "x", "y", "y"])
    found = warnings_of(make_dataset(X, label=labels))["cells_without_validation"]
    assert "4 of 5 cells are too small" in found
    assert "label=v: 2 rows; label=w: 2 rows; label=x: 2 rows; ...)" in found


def test_balanced_rounding_is_not_advised_to_those_who_use_it(make_dataset: Maker, X: NDArray[Any]) -> None:
    labels = np.array(["big"] * 198 + ["small"] * 2)
    found = warnings_of(make_dataset(X, label=labels), rounding="balanced", holdout="0.1")
    assert found["cells_without_validation"].endswith("; try fewer columns in --stratify")


def test_a_share_far_from_the_holdout_is_pointed_out(make_dataset: Maker, X: NDArray[Any]) -> None:
    labels = np.repeat(np.arange(40), 5)
    missed = warnings_of(make_dataset(X, label=labels), holdout="0.25")["holdout_missed"]  # 1 of 5 each
    assert "validation holds 0.2 of the rows, more than 10 % off h=0.25" in missed
    assert "--rounding balanced" in missed
    assert "holdout_missed" not in warnings_of(make_dataset(X, label=labels), holdout="0.22")
    assert "holdout_missed" not in warnings_of(
        make_dataset(X, label=labels), holdout="0.25", rounding="balanced"
    )


def test_a_share_that_the_tolerance_moved_is_blamed_on_the_tolerance(
    make_dataset: Maker, X: NDArray[Any]
) -> None:
    missed = warnings_of(make_dataset(X), tolerance="0.5")["holdout_missed"]
    assert missed.endswith("try a smaller --tolerance")


def test_mostly_tiny_cells_leave_a_split_no_freedom(make_dataset: Maker, X: NDArray[Any]) -> None:
    mostly = np.concatenate([np.repeat(np.arange(30), 4), np.repeat(np.arange(30, 46), 5)])
    evenly = np.concatenate([np.repeat(np.arange(20), 4), np.repeat(np.arange(20, 44), 5)])
    found = warnings_of(make_dataset(X, label=mostly))
    assert "30 of 46 cells have fewer than 5 rows" in found["too_many_cells"]
    assert "too_many_cells" not in warnings_of(make_dataset(X, label=evenly))


def test_a_search_cut_short_says_so(make_dataset: Maker, X: NDArray[Any]) -> None:
    options = check_options(SplitOptions(certify="never", effort="fast", max_iter=7))
    with prepared_split(make_dataset(X), options) as context:
        found = context.refine(context.explore())
        whole = assess(context, found, {})
        cut = assess(context, replace(found, converged=False), {})
    assert found.converged and notices(whole) == ()
    ((code, message),) = notices(cut)
    assert code == "not_converged" and "had not converged after 7 iterations; raise --max-iter" in message


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_split_no_better_than_random_ones_says_so(
    make_dataset: Maker, dtype: type, X: NDArray[Any]
) -> None:
    X = X.astype(dtype)
    nothing_to_choose = {
        "two rows": make_dataset(X[:2]),
        "equal rows in every cell": make_dataset(np.repeat(X[:4], 25, axis=0), label=np.repeat(range(4), 25)),
    }
    for dataset in nothing_to_choose.values():
        assert "not above that of random splits" in warnings_of(dataset, holdout="0.5")["not_above_random"]
    assert "not_above_random" in warnings_of(make_dataset(X * 1e4), gamma="1")  # all rows alone


def test_whole_groups_that_leave_one_split_are_called_that(make_dataset: Maker, X: NDArray[Any]) -> None:
    groups = np.repeat([0, 1, 2], [100, 60, 40])  # a fifth is the last of them
    found = warnings_of(replace(make_dataset(X), together="group", units=groups))
    assert "all 10 random splits that were drawn within the constraints are the same" in found["no_choice"]
    assert "not_above_random" not in found
    several = replace(make_dataset(X), together="group", units=np.repeat(range(10), 20))
    assert "no_choice" not in warnings_of(several)


def test_a_random_baseline_is_not_told_that_it_is_random(make_dataset: Maker, X: NDArray[Any]) -> None:
    options = check_options(SplitOptions(certify="never", effort="fast", bound="never"))

    def codes(strategy: str) -> set[str]:
        with opened_local(make_dataset(X), options) as engine:
            ((_, made),) = baseline(strategy, engine.without_search())
        return {notice.code for notice in made.report.warnings}

    assert codes("random") == set()
    with opened_local(make_dataset(X), options) as engine:
        context = engine.without_search().prepare(engine.survey())
        drawn = context.measure(context.draw("random"))
        assert [code for code, _ in notices(assess(context, drawn, {}))] == ["not_above_random"]
