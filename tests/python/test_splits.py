"""Arrays that are split, in scikit-learn's order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
import scipy.sparse

from clustersplit import cluster_split, cluster_train_val_split


def test_the_order_is_that_of_train_test_split(data: Any, quick: Any) -> None:
    selection = pytest.importorskip("sklearn.model_selection", reason="scikit-learn is not installed")
    weights, names = np.arange(90.0), [f"row {row}" for row in range(90)]
    theirs = selection.train_test_split(data.X, data.y, weights, names, test_size=0.2)
    ours = cluster_train_val_split(data.X, data.y, weights, names, test_size=0.2, **quick)
    assert [type(each) for each in ours] == [type(each) for each in theirs]
    assert [np.shape(each) for each in ours] == [np.shape(each) for each in theirs]
    train, val = cluster_split(data.X, data.y, **quick)
    for place, each in enumerate((data.X, data.y, weights, np.array(names))):
        np.testing.assert_array_equal(ours[2 * place], each[train])
        np.testing.assert_array_equal(ours[2 * place + 1], each[val])


def test_every_kind_of_table_keeps_its_kind(data: Any, quick: Any) -> None:
    _, val = cluster_split(data.X, data.y, data.domains, **quick)
    frame = pandas.DataFrame(data.X, index=np.arange(90)[::-1])
    given = (data.y, frame, polars.DataFrame(data.X), pa.table({"a": data.y}), scipy.sparse.coo_array(data.X))
    found = cluster_train_val_split(data.X, *given, domains=data.domains, **quick)
    of_val = found[1::2]
    np.testing.assert_array_equal(of_val[2].to_numpy(), data.X[val])
    assert of_val[2].index.tolist() == (89 - val).tolist()
    np.testing.assert_array_equal(of_val[3].to_numpy(), data.X[val])
    assert of_val[4]["a"].to_pylist() == data.y[val].tolist()
    np.testing.assert_array_equal(of_val[5].toarray(), data.X[val])


def test_options_of_cluster_split_are_passed_on(data: Any, quick: Any) -> None:
    groups = np.arange(90) // 3
    X_train, X_val = cluster_train_val_split(data.X, test_size=0.5, groups=groups, kernel="linear", **quick)
    assert len(X_train) == len(X_val) == 45
    texts = [str(row) for row in range(90)]
    kept, held = cluster_train_val_split(
        texts, transformer=lambda rows: data.X[[int(row) for row in rows]], **quick
    )
    assert sorted(kept + held, key=int) == texts


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda d: cluster_train_val_split(d.X, d.y, h=0.3),
            "h is called test_size here",
        ),
        (lambda d: cluster_train_val_split(d.X, d.y, [1, 2]), "array 0 after y has 2 rows, and X has 90"),
        (lambda d: cluster_train_val_split(d.X, "label"), "y='label' names a column"),
    ],
)
def test_what_cannot_be_split_is_said(call: Any, message: str, data: Any) -> None:
    with pytest.raises(ValueError, match=message):
        call(data)
