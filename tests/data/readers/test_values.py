"""Values that cannot be used: not finite, ragged, too few, constant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from clustersplit_cli.data.readers.columns import choose_features
from clustersplit_cli.data.readers.formats import open_features
from clustersplit_cli.data.readers.matrix import read_matrix
from clustersplit_cli.errors import InputError
from clustersplit_cli.progress import silent

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def dirty(features) -> np.ndarray:
    values = features.copy()
    values[3, 1], values[5, 0], values[5, 2], values[11, 2] = np.nan, np.inf, np.nan, -np.inf
    return values


def stored(values, labels, suffix):
    if suffix == "npy":
        return values
    if suffix == "list":
        return pa.table({"v": pa.array(values.tolist(), pa.list_(pa.float32())), "label": labels})
    return pa.table({f"f{j}": values[:, j] for j in range(values.shape[1])} | {"label": labels})


@pytest.mark.parametrize("kind", ["scalar", "list"])
def test_values_that_are_not_finite_are_counted_and_located(kind, dirty, save, read) -> None:
    path = save(stored(dirty, ["a", "b"] * 6, kind), "data.parquet")
    names = ("f1", "f0, f2", "f2") if kind == "scalar" else (r"v\[1\]", r"v\[0\], v\[2\]", r"v\[2\]")
    message = rf"3 of 12 rows .*row 3 \({names[0]}\), row 5 \({names[1]}\), row 11 \({names[2]}\)$"
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "--drop-invalid" in caught.value.hint


@pytest.mark.parametrize("kind", ["scalar", "list"])
def test_dropped_rows_are_counted_and_the_others_keep_their_positions(
    kind, dirty, features, save, read
) -> None:
    labels = ["a", "b", "a", "only here", *["a", "b"] * 4]
    dataset = read(
        save(stored(dirty, labels, kind), "data.parquet"), drop_invalid=True, exclude=(("label", "b"),)
    )
    rows = [0, 2, 4, 6, 8, 10]
    np.testing.assert_array_equal(dataset.rows, rows)
    np.testing.assert_array_equal(dataset.features, features[rows])
    assert dataset.features.flags.c_contiguous
    assert dataset.features.base is None
    assert (dataset.n_rows, dataset.n_excluded, dataset.n_dropped) == (12, 5, 1)
    assert dataset.categories["label"].values == ("a",)
    np.testing.assert_array_equal(dataset.categories["label"].codes, [0] * 6)


def test_row_numbers_in_messages_count_excluded_rows(dirty, save, read) -> None:
    path = save(stored(dirty, ["a", "b"] * 6, "scalar"), "data.parquet")
    with pytest.raises(InputError, match=r"3 of 6 rows .*row 3 "):
        read(path, exclude=(("label", "a"),))


def test_not_finite_values_of_excluded_rows_do_not_matter(dirty, features, save, read) -> None:
    path = save(stored(dirty, ["a", "b"] * 6, "scalar"), "data.parquet")
    np.testing.assert_array_equal(read(path, exclude=(("label", "b"),)).features, features[::2])


def test_nothing_left_after_dropping_is_an_error(save, read) -> None:
    path = save(np.array([[NAN, 1], [1, INF], [1, 2]]), "data.npy")
    with pytest.raises(InputError, match="2 of 3 rows have features that are not finite"):
        read(path, stratify=(), drop_invalid=True)


def test_many_dropped_rows_leave_the_right_ones(save, read) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5000, 300)).astype(np.float32)
    bad = rng.random(5000) < 0.4
    values[bad, rng.integers(0, 300, bad.sum())] = np.nan
    dataset = read(save(values, "data.npy"), stratify=(), drop_invalid=True)
    np.testing.assert_array_equal(dataset.features, values[~bad])
    np.testing.assert_array_equal(dataset.rows, np.flatnonzero(~bad))


@pytest.mark.parametrize(
    "type_", [pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.int64(), pa.bool_()]
)
@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_nulls_in_features_count_as_missing(type_, suffix, save, read) -> None:
    ones = pa.array([1, 0, None, 1]).cast(pa.int8()).cast(pa.float32()).cast(type_)
    path = save(pa.table({"x0": ones, "x1": ones, "label": ["a", "b"] * 2}), f"data.{suffix}")
    with pytest.raises(InputError, match=r"1 of 4 rows .*row 2 \(x0, x1\)"):
        read(path)
    dataset = read(path, drop_invalid=True)
    np.testing.assert_array_equal(dataset.features, [[1, 1], [0, 0], [1, 1]])
    np.testing.assert_array_equal(dataset.rows, [0, 1, 3])


def test_empty_csv_fields_count_as_missing(tmp_path, read) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x0,x1,label\n1,2,a\n,3,b\n4,NA,a\n5,6,b\n")
    with pytest.raises(InputError, match=r"2 of 4 rows .*row 1 \(x0\), row 2 \(x1\)"):
        read(path)
    np.testing.assert_array_equal(read(path, drop_invalid=True).features, [[1, 2], [5, 6]])


def test_text_late_in_a_csv_feature_column_is_explained(tmp_path, read) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x0,x1,label\n" + "1.25,2.5,a\n" * 500_000 + "1,oops,b\n")
    with pytest.raises(InputError, match=r"invalid value 'oops'"):
        read(path)


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_ragged_lists_are_located(suffix, save, read) -> None:
    lists = [[1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0], [], [3.0, 4.0]]
    path = save(pa.table({"v": lists, "label": ["a", "b", "a", "b", "b", "a"]}), f"data.{suffix}")
    message = (
        "lists in column 'v' .* differ in length: the first has 2, row 1 has 1, row 3 has 3, row 4 has 0$"
    )
    with pytest.raises(InputError, match=message):
        read(path)
    np.testing.assert_array_equal(read(path, exclude=(("label", "b"),)).features, [[1, 2], [1, 2], [3, 4]])


def test_row_numbers_of_ragged_lists_count_excluded_rows(save, read) -> None:
    path = save(
        pa.table({"v": [[1.0], [1.0, 2.0], [3.0], [1.0]], "label": ["b", "a", "b", "a"]}), "data.parquet"
    )
    with pytest.raises(InputError, match=r"the first has 2, row 3 has 1$"):
        read(path, exclude=(("label", "b"),))


def test_a_source_with_fewer_rows_than_expected_is_refused(save, features) -> None:
    source = open_features(save(features, "data.npy"))
    chosen = choose_features(source, (), ())
    for n_rows in (11, 13):
        with pytest.raises(InputError, match=f"does not hold the {n_rows} rows"):
            read_matrix(source, chosen, np.ones(n_rows, np.bool_), silent)


def test_lists_that_change_length_from_batch_to_batch_are_ragged(save, read) -> None:
    lists = [[1.0, 2.0]] * 5 + [[1.0, 2.0, 3.0]] * 5
    with pytest.raises(InputError, match="the first has 2, row 5 has 3, "):
        read(save(pa.table({"v": lists, "label": ["a", "b"] * 5}), "data.arrow"))


@pytest.mark.parametrize(
    "type_", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2), pa.large_list(pa.float16())]
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_null_lists_are_missing_rows(type_, suffix, save, read) -> None:
    lists = [None] * 6 + [[1.0, 2.0], None, [3.0, None], [5.0, 6.0]]
    if pa.types.is_large_list(type_):
        column = pa.array(
            [None if v is None else [None if x is None else np.float16(x) for x in v] for v in lists], type_
        )
    else:
        column = pa.array(lists, type_)
    path = save(pa.table({"v": column, "label": ["a", "b"] * 5}), f"data.{suffix}")
    with pytest.raises(InputError, match=r"8 of 10 rows .*row 0 \(v\[0\], v\[1\]\)"):
        read(path)
    dataset = read(path, drop_invalid=True)
    np.testing.assert_array_equal(dataset.features, [[1, 2], [5, 6]])
    np.testing.assert_array_equal(dataset.rows, [6, 9])


@pytest.mark.parametrize("lists", [[[], []], [None, None]])
def test_lists_without_values_are_an_error(lists, save, read) -> None:
    path = save(pa.table({"v": pa.array(lists, pa.list_(pa.float32())), "label": ["a", "b"]}), "data.parquet")
    with pytest.raises(InputError, match="only empty or null lists"):
        read(path)


def test_an_array_without_columns_is_an_error(save, read) -> None:
    path = save({"X": np.ones((4, 0)), "label": np.array([0, 1] * 2)}, "data.npz")
    with pytest.raises(InputError, match=r"'X' .* has only empty or null lists"):
        read(path)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "feather", "arrows", "npy", "npz"])
@pytest.mark.parametrize(("n", "message"), [(0, "has no rows"), (1, "has 1 row$")])
def test_too_few_rows_are_an_error(suffix, n, message, save, read) -> None:
    values = np.ones((n, 2), np.float32)
    table = pa.table({"x0": values[:, 0], "x1": values[:, 1], "label": pa.array(["a"] * n, pa.string())})
    data = {"npy": values, "npz": {"X": values}}.get(suffix, table)
    with pytest.raises(InputError, match=message):
        read(save(data, f"data.{suffix}"), stratify=())


@pytest.mark.parametrize("suffix", ["parquet", "npy"])
def test_constant_features_are_an_error(suffix, save, read) -> None:
    values = np.tile(np.array([1, 2], np.float32), (4, 1))
    data = values if suffix == "npy" else pa.table({"x0": values[:, 0], "x1": values[:, 1]})
    with pytest.raises(InputError, match="constant: all 4 rows are the same"):
        read(save(data, f"data.{suffix}"), stratify=())


def test_text_arrays_are_no_features(save, read) -> None:
    with pytest.raises(InputError, match="no numeric feature columns"):
        read(save(np.array([["a", "b"], ["c", "d"]]), "data.npy"), stratify=())
