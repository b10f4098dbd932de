"""Which columns become features."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from clustersplit_cli.errors import InputError

N = 4
LABEL = ["a", "b"] * 2


def table(**columns: object) -> pa.Table:
    """Columns by name; a type code stands for arbitrary values of that type."""
    rng = np.random.default_rng(1)
    made = {}
    for name, kind in columns.items():
        if kind == "text":
            made[name] = pa.array(["p", "q", "r", "s"])
        elif kind in ("list", "ints"):
            made[name] = pa.array(
                rng.integers(0, 9, (N, 2)).tolist(), pa.list_(pa.float32() if kind == "list" else pa.int8())
            )
        else:
            made[name] = rng.integers(0, 9, N).astype(kind)
    return pa.table(made | {"label": LABEL})


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ({"a": "f4", "v": "list", "x0": "f4", "x1": "f4"}, ("v",)),
        ({"x0": "f4", "y0": "f4", "x1": "f4", "z": "f8"}, ("x0", "x1")),
        ({"x10": "f4", "x9": "f4"}, ("x10", "x9")),
        ({"0": "f4", "1": "f4", "2": "f4", "n0": "f4", "n1": "f4"}, ("0", "1", "2")),
        ({"px0": "u1", "px1": "u1", "weight": "f4"}, ("px0", "px1")),
        ({"v": "list", "w": "list", "x0": "f4", "x1": "f4"}, ("x0", "x1")),
        ({"only1": "f4"}, ("only1",)),
        ({"path1": "text", "path2": "text", "path3": "text", "x0": "f4", "x1": "f4"}, ("x0", "x1")),
        ({"v": "list", "codes": "ints"}, ("v",)),
    ],
)
def test_default_columns_follow_the_documented_rules(columns, chosen, save, read) -> None:
    dataset = read(save(table(**columns), "data.parquet"))
    assert dataset.feature_columns == chosen
    assert dataset.notes == ()


def test_all_floating_point_columns_are_a_guess_that_is_reported(save, read) -> None:
    dataset = read(save(table(height="f4", weight="f8", x1="f2", count="i4", name="text"), "data.parquet"))
    assert dataset.feature_columns == ("height", "weight", "x1")
    assert dataset.features.dtype == np.float64
    ((code, message),) = dataset.notes
    assert code == "feature_columns_guessed"
    assert "height, weight, x1" in message


@pytest.mark.parametrize("role", ["label", "domain", "stratify", "exclude", "id_column"])
def test_a_column_with_another_role_is_never_a_feature(role, save, read) -> None:
    data = table(x0="f4", x1="f4", x2="f4").append_column("x3", pa.array([1.0, 1.0, 2.0, 2.0]))
    value = {"stratify": ("x3",), "exclude": (("x3", "7"),)}.get(role, "x3")
    if role == "exclude":
        data = pa.concat_tables([data, data.set_column(4, "x3", pa.array([7.0] * N))])
    dataset = read(save(data, "data.parquet"), **{role: value})
    assert dataset.feature_columns == ("x0", "x1", "x2")
    assert read(
        save(data, "data.parquet"), columns=("x*",), **{"stratify": ()} | {role: value}
    ).feature_columns == (
        "x0",
        "x1",
        "x2",
    )


def test_the_default_label_and_domain_are_no_features_even_when_unused(save, read) -> None:
    data = pa.table({"a": [1.0, 2.0], "label": [0.0, 1.0], "domain": [5.0, 6.0]})
    assert read(save(data, "data.parquet"), stratify=()).feature_columns == ("a",)


@pytest.mark.parametrize(
    ("globs", "chosen"),
    [
        (("x*",), ("x0", "x1")),
        (("z", "x1"), ("x1", "z")),
        (("[xz]*",), ("x0", "x1", "z")),
        (("v",), ("v",)),
        (("a[0]",), ("a[0]",)),
        (("codes",), ("codes",)),
    ],
)
def test_columns_are_chosen_by_globs_and_names(globs, chosen, save, read) -> None:
    data = table(x0="f4", x1="i8", v="list", codes="ints", z="f4").append_column(
        "a[0]", pa.array([1.0, 2, 3, 4])
    )
    assert read(save(data, "data.parquet"), columns=globs).feature_columns == chosen


@pytest.mark.parametrize(
    ("globs", "message", "hint"),
    [
        (("fo*",), "no column of .* matches 'fo\\*'", "there is: 'x0'"),
        (("xo",), "no column of .* matches 'xo'", "'x0'"),
        (("x0", "name"), "not numbers: 'name' \\(string\\)", "--columns"),
        (("*",), "not numbers: 'name'", "--columns"),
        (("x0", "v"), "a list column cannot be combined", "--columns"),
        (("label",), "another role: 'label'", "--columns"),
        (("words",), "not numbers: 'words'", "--columns"),
    ],
)
def test_columns_that_cannot_be_features_are_refused(globs, message, hint, save, read) -> None:
    data = table(x0="f4", x1="f4", v="list", name="text").append_column("words", pa.array([["a"]] * N))
    with pytest.raises(InputError, match=message) as caught:
        read(save(data, "data.parquet"), columns=globs)
    assert hint in caught.value.hint


def test_a_text_column_among_numbered_features_is_refused_not_skipped(save, read) -> None:
    with pytest.raises(InputError, match="not numbers: 'x2' \\(string\\)"):
        read(save(table(x0="f4", x1="f4", x2="text", x3="f4"), "data.parquet"))


def test_a_typo_that_makes_a_csv_column_text_is_refused_not_skipped(tmp_path, read) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x0,x1,label\n1,2,a\n3,oops,b\n")
    with pytest.raises(InputError, match=r"not numbers: 'x1' \(string\)"):
        read(path)


def test_two_numbered_sets_of_one_size_are_ambiguous(save, read) -> None:
    with pytest.raises(InputError, match="several sets of 2 numbered columns: 'x\\*', 'y\\*'"):
        read(save(table(x0="f4", x1="f4", y0="f4", y1="f4"), "data.parquet"))


def test_several_list_columns_are_ambiguous(save, read) -> None:
    with pytest.raises(InputError, match="several list columns: 'v', 'w'"):
        read(save(table(v="list", w="list"), "data.parquet"))


def test_no_numeric_columns_is_an_error(save, read) -> None:
    with pytest.raises(InputError, match=r"no numeric feature columns.*'name' \(string\)"):
        read(save(table(name="text"), "data.parquet"))


@pytest.mark.parametrize(
    ("types", "result"),
    [
        (["f2", "f2"], "f2"),
        (["f4", "f4"], "f4"),
        (["f8", "f8"], "f8"),
        (["f2", "f4"], "f4"),
        (["u1", "i2"], "f4"),
        (["u2", "f2"], "f4"),
        (["?", "?"], "f4"),
        (["i4", "f4"], "f8"),
        (["i8", "i8"], "f8"),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "npy"])
def test_the_matrix_has_the_smallest_float_type_that_holds_all_columns(
    types, result, suffix, save, read
) -> None:
    data = table(x0=types[0], x1=types[1])
    expected = np.column_stack([data.column(i).to_numpy() for i in range(2)]).astype(result)
    if suffix == "npy":
        records = np.zeros(N, [("x0", types[0]), ("x1", types[1]), ("label", "U1")])
        for name in ("x0", "x1", "label"):
            records[name] = data.column(name).to_numpy()
        path = save(records, "data.npy")
    else:
        path = save(data, f"data.{suffix}")
    dataset = read(path)
    assert dataset.features.dtype == result
    np.testing.assert_array_equal(dataset.features, expected)


@pytest.mark.parametrize(("element", "result"), [("f2", "f2"), ("f8", "f8"), ("i1", "f4"), ("u4", "f8")])
def test_lists_follow_the_same_rule(element, result, save, read) -> None:
    values = np.arange(8).reshape(4, 2).astype(element)
    column = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 2)
    dataset = read(save(pa.table({"v": column, "label": LABEL}), "data.parquet"), columns=("v",))
    assert dataset.features.dtype == result
    np.testing.assert_array_equal(dataset.features, values)


def test_column_names_with_dots_are_ordinary_names(save, read) -> None:
    data = pa.table({"x": [1.0, 2.0], "x.1": [3.0, 4.0], "x.2": [5.0, 7.0], "label": ["a", "b"]})
    np.testing.assert_array_equal(read(save(data, "data.parquet")).features, [[3, 5], [4, 7]])
    np.testing.assert_array_equal(read(save(data, "data.parquet"), columns=("x",)).features, [[1], [2]])
