"""Labels, domains, exclusions and ids."""

from __future__ import annotations

import datetime
import decimal
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustersplit_cli.data.readers import categories
from clustersplit_cli.data.readers.categories import bin_numbers, encode, restrict
from clustersplit_cli.errors import InputError, UsageError

X = {"x0": [1.0, 2.0, 3.0, 4.0], "x1": [0.0, 1.0, 0.0, 2.0]}


def with_columns(**columns: object) -> pa.Table:
    return pa.table(X | columns)


@pytest.mark.parametrize(
    ("values", "expected", "codes"),
    [
        (pa.array(["b", "a", "é", "Z"]), ("Z", "a", "b", "é"), [2, 1, 3, 0]),
        (pa.array(["b", "a", "b", "a"], pa.large_string()), ("a", "b"), [1, 0, 1, 0]),
        (pa.array([10, 9, -1, 10]), (-1, 9, 10), [2, 1, 0, 2]),
        (pa.array([2**63, 1, 1, 2], pa.uint64()), (1, 2, 2**63), [2, 0, 0, 1]),
        (pa.array([True, False, True, True]), (False, True), [1, 0, 1, 1]),
        (pa.array([3.0, 1.0, 3.0, 2.0]), (1, 2, 3), [2, 0, 2, 1]),
        (pa.array(np.array([3, 1, 3, 2], np.float16)), (1, 2, 3), [2, 0, 2, 1]),
        (pa.array(["x", "y", "x", "x"]).dictionary_encode(), ("x", "y"), [0, 1, 0, 0]),
        (pa.DictionaryArray.from_arrays(pa.array([1, 0, 1, 1]), pa.array([7, 5, 9])), (5, 7), [0, 1, 0, 0]),
        (pa.array([b"x", b"y", b"x", b"y"], pa.binary()), ("x", "y"), [0, 1, 0, 1]),
    ],
)
def test_labels_of_every_kind_become_sorted_codes(values, expected, codes, save, read) -> None:
    label = read(save(with_columns(label=values), "data.parquet")).categories["label"]
    assert label.values == expected
    assert [type(value) for value in label.values] == [type(value) for value in expected]
    np.testing.assert_array_equal(label.codes, codes)


@given(st.data())
def test_few_values_are_numbered_as_many_are(data: st.DataObject) -> None:
    type_, values = data.draw(
        st.sampled_from(
            [
                (pa.string(), st.none() | st.text(max_size=3)),
                (pa.large_string(), st.text(max_size=2)),
                (pa.int8(), st.none() | st.integers(-3, 3)),
                (pa.uint64(), st.integers(2**64 - 3, 2**64 - 1)),
            ]
        )
    )
    column = pa.chunked_array(data.draw(st.lists(st.lists(values, max_size=6), max_size=4)), type_)
    found = []
    for few in (1000, -1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(categories, "FEW_ROWS", few)
            codes, distinct = categories.group_values(column, "label")
        found.append([None if code < 0 else distinct[code] for code in codes])
    assert found[0] == found[1] == column.to_pylist()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1 2 10 2", (1, 2, 10)),
        ("01 02 10 02", ("01", "02", "10")),
        ("1.0 2.0 10.0 2.0", (1, 2, 10)),
        ("true false true true", (False, True)),
        ("True False True True", (False, True)),
        ("a NA b a", ("NA", "a", "b")),
        ("1e3 5 5 5", (5, 1000)),
        ("nan1 5 5 5", ("5", "nan1")),
    ],
)
def test_csv_labels_are_typed_by_all_of_their_values(text, values, tmp_path, read) -> None:
    path = tmp_path / "data.csv"
    path.write_text("x0,x1,label\n" + "".join(f"{i},{i % 2},{word}\n" for i, word in enumerate(text.split())))
    assert read(path).categories["label"].values == values


@pytest.mark.parametrize("word", ["", "NA", "nan", "null"])
def test_csv_words_for_nothing_are_missing_among_numbers(word, tmp_path, read) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"x0,x1,label\n1,2,3\n1,3,{word}\n1,4,5\n")
    with pytest.raises(InputError, match=r"'label' has no value in 1 rows: 1$"):
        read(path)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([0.5, 1.0, 2.0, 3.0]), "not whole, such as 0.5"),
        (pa.array([float("inf"), 1.0, 2.0, 3.0]), "not whole"),
        (pa.array([datetime.date(2020, 1, 1)] * 4), "date32"),
        (pa.array([datetime.datetime(2020, 1, 1)] * 4), "timestamp"),
        (pa.array([decimal.Decimal("1.5")] * 4), "decimal"),
        (pa.array([["a"]] * 4), "list"),
        (pa.array([b"\xff"] * 4, pa.binary()), "not UTF-8"),
    ],
)
def test_values_that_cannot_name_groups_are_refused_with_a_cure(values, what, save, read) -> None:
    with pytest.raises(InputError, match=f"column 'label' holds .*{what}") as caught:
        read(save(with_columns(label=values), "data.parquet"))
    assert "text or integers" in caught.value.hint


@pytest.mark.parametrize("values", [["a", None, "b", None], [1.0, float("nan"), 2.0, None]])
def test_missing_labels_are_counted_and_located(values, save, read) -> None:
    with pytest.raises(InputError, match="column 'label' has no value in 2 rows: 1, 3"):
        read(save(with_columns(label=values), "data.parquet"))


def test_missing_labels_of_excluded_rows_do_not_matter(save, read) -> None:
    path = save(with_columns(label=["a", None, "b", None], site=["p", "q", "p", "q"]), "data.parquet")
    dataset = read(path, exclude=(("site", "q"),))
    np.testing.assert_array_equal(dataset.rows, [0, 2])
    assert dataset.categories["label"].values == ("a", "b")
    assert (dataset.n_rows, dataset.n_excluded) == (4, 2)


@pytest.mark.parametrize(
    ("column", "value", "rows"),
    [
        (["p", "q", "r", "q"], "q", [0, 2]),
        ([1, 2, 3, 2], "2", [0, 2]),
        ([1.0, 2.0, 3.0, 2.0], "2", [0, 2]),
        ([1.5, 2.0, 3.0, 2.0], "2.0", [0, 2]),
        ([0.5, 2.5, None, 2.5], "2.5", [0, 2]),
        ([False, True, False, True], "true", [0, 2]),
        ([False, True, False, True], "True", [0, 2]),
        ([None, "q", "", "q"], "q", [0, 2]),
    ],
)
@pytest.mark.parametrize("suffix", ["parquet", "csv", "feather"])
def test_excluded_rows_go_and_the_others_keep_their_positions(
    column, value, rows, suffix, save, read
) -> None:
    path = save(with_columns(label=["a", "b"] * 2, group=column), f"data.{suffix}")
    dataset = read(path, exclude=(("group", value),))
    np.testing.assert_array_equal(dataset.rows, rows)
    np.testing.assert_array_equal(dataset.features, np.column_stack(list(X.values()))[rows])
    assert dataset.categories["label"].values == ("a",)


@pytest.mark.parametrize(
    "values",
    [["a", None, "b", None], ["a", "", "b", ""], [1, None, 2, None], [1.0, float("nan"), 2.0, None]],
)
def test_rows_without_a_value_are_excluded_by_saying_nothing(values, save, read) -> None:
    dataset = read(save(with_columns(label=values), "data.parquet"), exclude=(("label", ""),))
    np.testing.assert_array_equal(dataset.rows, [0, 2])


def test_missing_labels_are_refused_with_a_cure_that_works(save, read) -> None:
    path = save(with_columns(label=["a", None, "b", None]), "data.parquet")
    with pytest.raises(InputError) as caught:
        read(path)
    column, _, value = caught.value.hint.rpartition("--exclude ")[2].partition("=")
    assert len(read(path, exclude=((column, value),)).rows) == 2
    with pytest.raises(InputError, match="never has the value 'None'") as caught:
        read(path, exclude=(("label", "None"),))
    assert caught.value.hint == "its values: a, b"


@pytest.mark.parametrize("values", [[1.0, float("nan"), 1.0, 2.0], ["p", None, "p", "q"]])
def test_rows_without_a_unit_are_not_kept_together(values, save, read) -> None:
    path = save(with_columns(label=["a"] * 4, patient=values), "data.parquet")
    with pytest.raises(
        InputError, match="column 'patient', which keeps rows together, has no value in 1 rows: 1"
    ):
        read(path, together="patient")


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64()])
def test_bins_of_integers_that_no_float_holds(type_: pa.DataType) -> None:
    top = 2 ** (63 if pa.types.is_signed_integer(type_) else 64)
    column = pa.chunked_array([pa.array([top - 1 - row for row in range(6)], type_)])
    binned, notes = bin_numbers(column, "label", np.arange(6), 3)
    assert (binned.codes.tolist(), notes) == ([2, 2, 1, 1, 0, 0], ())


@given(
    st.lists(st.integers(-20, 20), min_size=1, max_size=30),
    st.integers(1, 9),
    st.sampled_from(["f2", "f4", "f8", "i1", "i8"]),
)
@settings(max_examples=60, deadline=None)
def test_bins_are_cut_at_quantiles_that_occur(numbers: list[int], bins: int, dtype: str) -> None:
    values = np.array(numbers, dtype=dtype)
    cuts = np.unique(np.quantile(values.astype("f8"), np.arange(1, bins) / bins, method="higher"))
    expected = np.unique(np.searchsorted(cuts, values, side="right"), return_inverse=True)[1]
    found, _ = bin_numbers(pa.chunked_array([pa.array(values)]), "label", np.arange(len(values)), bins)
    assert found.codes.tolist() == expected.tolist()


def test_several_exclusions_add_up_and_the_word_domain_means_the_role(save, read) -> None:
    path = save(with_columns(y=["a", "b", "c", "d"], site=[1, 2, 2, 3]), "data.parquet")
    dataset = read(path, label="y", domain="site", exclude=(("domain", "1"), ("label", "b")))
    np.testing.assert_array_equal(dataset.rows, [2, 3])
    assert dataset.categories["domain"].values == (2, 3)


def test_excluding_a_value_that_never_occurs_lists_the_values(save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2), "data.parquet")
    with pytest.raises(InputError, match="never has the value 'c'") as caught:
        read(path, exclude=(("label", "c"),))
    assert caught.value.hint == "its values: a, b"


def test_excluding_all_rows_is_an_error(save, read) -> None:
    path = save(with_columns(label=["a"] * 4), "data.parquet")
    with pytest.raises(InputError, match="only 0 of 4 rows are left after --exclude"):
        read(path, exclude=(("label", "a"),))


def test_cells_are_label_and_domain_if_there_is_a_domain_else_label(save, read) -> None:
    without = save(with_columns(label=["a", "b"] * 2), "a.parquet")
    both = save(with_columns(label=["a", "b"] * 2, domain=[1, 1, 2, 2]), "b.parquet")
    assert list(read(without).categories) == ["label"]
    assert list(read(both).categories) == ["label", "domain"]
    assert list(read(both, stratify=("domain",)).categories) == ["domain"]
    assert list(read(both, stratify=()).categories) == []


def test_words_of_the_family_are_roles_first_then_columns(save, read) -> None:
    path = save(with_columns(y=["a", "b"] * 2, label=["p"] * 4, site=[1, 1, 2, 2]), "data.parquet")
    dataset = read(path, label="y", stratify=("site", "label"))
    assert list(dataset.categories) == ["site", "label"]
    assert dataset.categories["label"].values == ("a", "b")


def test_a_column_named_twice_is_a_usage_error(save, read) -> None:
    with pytest.raises(UsageError, match="named twice"):
        read(save(with_columns(label=["a", "b"] * 2), "a.parquet"), stratify=("label", "label"))


def test_a_label_column_and_a_label_file_contradict_each_other(save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2), "a.parquet")
    with pytest.raises(UsageError, match="--label and --label-file"):
        read(path, label="label", label_file=save(np.arange(4), "l.npy"))


def test_without_a_default_label_the_cure_is_named(save, read) -> None:
    path = save(with_columns(Labels=["a", "b"] * 2), "data.parquet")
    with pytest.raises(InputError, match="no column 'label' in ") as caught:
        read(path)
    assert "--label NAME" in caught.value.hint
    assert "--stratify none" in caught.value.hint
    assert "'Labels'" in caught.value.hint
    assert read(path, stratify=()).categories == {}


@pytest.mark.parametrize(
    "options",
    [
        {"label": "specis"},
        {"domain": "specis"},
        {"stratify": ("specis",)},
        {"exclude": (("specis", "a"),)},
        {"id_column": "specis"},
        {"label": "specis", "stratify": ()},
    ],
)
def test_a_column_named_explicitly_must_exist(options, save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2, species=["a", "b"] * 2), "data.parquet")
    with pytest.raises(InputError, match="no column 'specis' in ") as caught:
        read(path, **options)
    assert "'species'" in caught.value.hint


def test_a_domain_that_is_asked_for_but_absent_is_an_error(save, read) -> None:
    with pytest.raises(InputError, match="no column 'domain'") as caught:
        read(save(with_columns(label=["a", "b"] * 2), "data.parquet"), stratify=("label", "domain"))
    assert "--domain NAME" in caught.value.hint


def test_no_domains_can_be_asked_for(save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2, domain=["p", "q"] * 2), "data.parquet")
    assert list(read(path).categories) == ["label", "domain"]
    assert list(read(path, domain="none").categories) == ["label"]
    with pytest.raises(InputError, match="--domain none leaves no column for 'domain'"):
        read(path, domain="none", stratify=("label", "domain"))


def test_errors_name_the_users_own_column(save, read) -> None:
    path = save(with_columns(species=["a", None, "b", "b"], site=[0.5, 1.0, 1.0, 1.0]), "data.parquet")
    with pytest.raises(InputError, match="column 'species' has no value in 1 rows: 1") as caught:
        read(path, label="species")
    assert "--exclude species=" in caught.value.hint
    with pytest.raises(InputError, match="column 'site' holds numbers that are not whole"):
        read(path, label="species", domain="site", exclude=(("label", ""),))
    with pytest.raises(InputError, match="--exclude label=c: column 'species' never has"):
        read(path, label="species", exclude=(("label", "c"),))


def test_ids_cover_all_rows_and_may_repeat(save, read) -> None:
    path = save(with_columns(label=["a", "b", "a", "c"], key=["k", "k", "l", "m"]), "data.parquet")
    dataset = read(path, id_column="key", exclude=(("label", "c"),))
    assert dataset.ids.to_pylist() == ["k", "k", "l", "m"]
    assert isinstance(dataset.ids, pa.Array)


def test_missing_ids_are_an_error(save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2, key=["k", None, "l", "m"]), "data.parquet")
    with pytest.raises(InputError, match="id column 'key' has no value in 1 rows: 1"):
        read(path, id_column="key")


@pytest.mark.parametrize("option", ["label_file", "domain_file", "metadata"])
def test_companions_of_another_length_are_refused_with_both_numbers(option, save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2), "data.parquet")
    other = save(pa.table({"q": [1, 2, 3]}), "m.csv") if option == "metadata" else save(np.arange(3), "m.npy")
    with pytest.raises(InputError, match=r"m\.\w+ has 3 rows but .*data.parquet has 4"):
        read(path, **{option: other})


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=3)), min_size=1, max_size=30))
def test_codes_spell_the_column_again(words) -> None:
    column = pa.chunked_array([pa.array(words, pa.string())])
    present = np.array([i for i, word in enumerate(words) if word is not None], dtype=np.int64)
    categories = encode(column, "label", present)
    assert [categories.values[code] for code in categories.codes] == [words[i] for i in present]
    assert list(categories.values) == sorted({words[i] for i in present})
    kept = np.arange(len(present)) % 2 == 0
    fewer = restrict(categories, kept)
    assert [fewer.values[code] for code in fewer.codes] == [words[i] for i in present[kept]]
    assert list(fewer.values) == sorted({words[i] for i in present[kept]})


def test_hundreds_of_thousands_of_distinct_labels_are_no_problem() -> None:
    n = 300_000
    numbers = np.random.default_rng(0).permutation(n)
    column = pa.chunked_array([pa.array(part).cast(pa.string()) for part in np.array_split(numbers, 3)])
    began = time.perf_counter()
    categories = encode(column, "label", np.arange(n))
    assert time.perf_counter() - began < 10
    assert [categories.values[code] for code in categories.codes[:1000]] == [str(k) for k in numbers[:1000]]


def test_excluding_by_a_column_that_cannot_be_compared_is_refused(save, read) -> None:
    path = save(with_columns(label=["a", "b"] * 2, words=[["a"]] * 4), "data.parquet")
    with pytest.raises(InputError, match="column 'words' holds list"):
        read(path, exclude=(("words", "a"),))
