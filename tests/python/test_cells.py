"""Cells as Python callers say them: arrays, several columns of labels, continuous numbers."""

from __future__ import annotations

import re
from copy import copy
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pytest

from clustersplit import ClusterKFold, ClusterShuffleSplit, ClusterSplitWarning, cluster_folds, cluster_split


def counts(values: Any, rows: Any) -> list[int]:
    return [int((np.asarray(values)[rows] == value).sum()) for value in np.unique(values)]


@pytest.mark.parametrize("as_given", [np.asarray, list, tuple, pa.array, pandas.Series])
def test_an_array_is_one_more_family(as_given: Any, data: Any, quick: Any) -> None:
    season = np.arange(len(data.X)) % 5 // 2
    found = cluster_split(data.X, data.y, stratify=as_given(season.tolist()), **quick)
    table = pandas.DataFrame(data.X).assign(stratify=season, label=data.y)
    named = cluster_split(table, "label", stratify=["label", "stratify"], **quick)
    np.testing.assert_array_equal(found.val, named.val)
    assert found.report.constraints == named.report.constraints
    assert counts(data.y, found.val) == [6, 6, 6]
    assert counts(season, found.val) == [7, 7, 4]


def test_arrays_and_names_may_be_mixed(data: Any, quick: Any) -> None:
    season, shift = np.arange(90) % 2, np.arange(90) % 3
    found = cluster_split(*data, stratify=["domain", season, shift], tolerance="auto", **quick)
    assert found.report.constraints.families == ("domain", "stratify_0", "stratify_1")
    alone = cluster_split(data.X, stratify=shift, **quick)
    assert alone.report.constraints.families == ("stratify",)
    assert counts(shift, alone.val) == [6, 6, 6]
    texts = cluster_split(data.X, stratify=data.y, **quick)
    assert counts(data.y, texts.val) == [6, 6, 6]


@pytest.mark.parametrize("as_given", [np.asarray, np.ndarray.tolist, pandas.DataFrame, "table"])
def test_columns_of_0_and_1_are_a_family_each(as_given: Any, data: Any, quick: Any) -> None:
    tags = np.stack([np.arange(90) % 2, np.arange(90) % 3 == 0, np.arange(90) % 5 == 0], axis=1).astype(int)
    y = pa.table({str(k): tags[:, k] for k in range(3)}) if as_given == "table" else as_given(tags)
    found = cluster_split(data.X, y, tolerance="auto", **quick)
    assert found.report.constraints.families == ("label_0", "label_1", "label_2")
    for column in tags.T:
        assert abs(counts(column, found.val)[1] - 0.2 * column.sum()) <= 1
    crossed = cluster_split(data.X, y, data.domains, tolerance="auto", **quick)
    assert crossed.report.constraints.families[0] == "label_0,domain"
    one = cluster_split(data.X, tags[:, :1], **quick)  # one column is a label like any other
    np.testing.assert_array_equal(one.val, cluster_split(data.X, tags[:, 0], **quick).val)


def test_other_columns_are_refused_with_what_would_do(data: Any) -> None:
    with pytest.raises(ValueError, match=r"column 1 holds 7, not only 0 and 1; pass classes as one column"):
        cluster_split(data.X, np.array([[0, 7]] * 90))
    with pytest.raises(ValueError, match="label_bins cuts one column"):
        cluster_split(data.X, np.zeros((90, 2), int), label_bins=3)
    with pytest.raises(ValueError, match="there are 5 stratify"):
        cluster_split(data.X, data.y, stratify=np.arange(5))


@pytest.mark.parametrize("splitter", [ClusterShuffleSplit(restarts=2), ClusterKFold(3, restarts=2)])
def test_splitters_cut_continuous_labels_and_say_so(splitter: Any, data: Any) -> None:
    y = np.random.default_rng(1).normal(size=90)
    with pytest.warns(ClusterSplitWarning, match="cut into 4 bins.*label_bins=4"):
        found = list(splitter.split(data.X, y))
    bins = np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75], method="higher"), y, side="right")
    share = len(found[0][1]) / 90
    assert all(abs(count - share * 22.5) <= 1.5 for count in counts(bins, found[0][1]))
    chosen = copy(splitter)
    chosen.label_bins = 4
    for (_, val), (_, other) in zip(found, chosen.split(data.X, y), strict=True):
        np.testing.assert_array_equal(val, other)


def test_whole_numbers_and_texts_are_not_cut(data: Any, quick: Any) -> None:
    for y in (data.y, np.arange(90) % 3, (np.arange(90) % 3).astype(float)):
        found = cluster_split(data.X, y, label_bins="auto", **quick)
        assert found.report.config["label_bins"] is None
        assert counts(y, found.val) == [6, 6, 6]
    with pytest.raises(ValueError, match=re.escape("numbers that are not whole, such as 0.1")):
        cluster_folds(data.X, np.full(90, 0.1), k=3)
    with pytest.raises(ValueError, match=re.escape("numbers that are not whole, such as 0.1")):
        list(ClusterKFold(3, label_bins=None).split(data.X, np.full(90, 0.1)))
