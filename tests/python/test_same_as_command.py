"""Splits of rows in memory: whatever they are held in, the same as the command line's."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from clustersplit import ClusterSplitError, ClusterSplitWarning, Split, cluster_split, mmd
from clustersplit_cli.cli.app import run
from clustersplit_cli.core.search.search import are_different
from clustersplit_cli.data.foreign import as_rows
from clustersplit_cli.reports.readable import render_json

ROWS, FEATURES = 120, 4


def optional(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed: make test installs it")


@pytest.fixture(scope="module")
def rows() -> np.ndarray[Any, Any]:
    found = np.random.default_rng(7).normal(size=(ROWS, FEATURES)).astype(np.float32)
    found[1::10] = found[::10]
    return found


@pytest.fixture(scope="module")
def labels() -> np.ndarray[Any, Any]:
    return np.array(["cat", "dog", "sea lion"])[np.random.default_rng(1).integers(0, 3, ROWS)]


@pytest.fixture(scope="module")
def domains() -> np.ndarray[Any, Any]:
    return np.random.default_rng(2).integers(0, 2, ROWS)


@pytest.fixture(scope="module")
def expected(rows: Any, labels: Any, domains: Any) -> Split:
    return cluster_split(rows, labels, domains)


def same(one: Split, other: Split) -> bool:
    return np.array_equal(one.train, other.train) and np.array_equal(one.val, other.val)


def command_line(folder: Path, table: pa.Table, *options: str) -> Split:
    pq.write_table(table, folder / "feats.parquet")
    assert run(["split", str(folder / "feats.parquet"), "--out", str(folder / "out"), "-q", *options]) == 0
    return Split.load(folder / "out")


def table_of(rows: Any, labels: Any, domains: Any) -> pa.Table:
    columns = {f"f{column}": rows[:, column] for column in range(rows.shape[1])}
    return pa.table({**columns, "label": labels, "domain": domains})


def test_sides_are_disjoint_sorted_positions_that_keep_every_cells_share(
    expected: Split, labels: Any, domains: Any
) -> None:
    everything = np.concatenate([expected.train, expected.val])
    np.testing.assert_array_equal(np.sort(everything), np.arange(ROWS))
    assert (np.diff(expected.val) > 0).all()
    for label in np.unique(labels):
        for domain in (0, 1):
            cell = np.flatnonzero((labels == label) & (domains == domain))
            assert np.isin(cell, expected.val).sum() == int(np.floor(0.2 * len(cell) + 0.5))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"h": 0.29, "seed": 3, "standardize": "zscore", "gamma": "median"},
        {"kernel": "linear", "rounding": "balanced", "tolerance": 0.1},
        {"nystrom": 30, "restarts": 3, "effort": "fast", "stratify": "label"},
    ],
)
def test_the_same_options_give_the_same_split_as_the_command_line(
    dtype: Any, options: dict[str, Any], rows: Any, labels: Any, domains: Any, tmp_path: Path
) -> None:
    if dtype is np.float16 and options:
        pytest.skip("one run in half precision is enough")
    rows = rows.astype(dtype)
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    theirs = command_line(tmp_path, table_of(rows, labels, domains), *flags)
    given = {"random_state" if name == "seed" else name: value for name, value in options.items()}
    ours = cluster_split(rows, labels, domains, **given)
    assert same(ours, theirs)
    assert ours.report.mmd == theirs.report.mmd
    assert ours.report.seed == options.get("seed", 0)


def test_a_list_column_makes_the_round_trip_through_parquet(
    rows: Any, labels: Any, domains: Any, expected: Split, tmp_path: Path
) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), FEATURES)
    table = pa.table({"embedding": lists, "label": labels, "domain": domains})
    assert same(command_line(tmp_path, table), expected)
    back = pq.read_table(tmp_path / "feats.parquet")
    assert same(cluster_split(back, "label", "domain"), expected)
    assert same(cluster_split(back["embedding"], back["label"], back["domain"]), expected)
    ragged = pa.table({"embedding": pa.array([[1.0, 2.0]] * (ROWS - 1) + [[1.0]])})
    with pytest.raises(ValueError, match="differ in length"):
        cluster_split(ragged, labels)


def test_lists_memory_orders_and_byte_orders_change_nothing(
    rows: Any, labels: Any, domains: Any, expected: Split
) -> None:
    for X in (np.asfortranarray(rows), rows.astype(">f4"), np.repeat(rows, 2, axis=0)[::2]):
        assert same(cluster_split(X, labels, domains), expected)
    wide = cluster_split(rows.astype(np.float64), labels, domains)
    assert same(cluster_split(rows.tolist(), labels.tolist(), domains.tolist()), wide)


def test_polars_frames_and_series_of_lists_give_the_same_split(
    rows: Any, labels: Any, domains: Any, expected: Split, tmp_path: Path
) -> None:
    polars = optional("polars")
    frame = polars.DataFrame({f"f{column}": rows[:, column] for column in range(FEATURES)})
    frame = frame.with_columns(label=polars.Series(labels.tolist()), domain=polars.Series(domains))
    assert same(cluster_split(frame, "label", "domain"), expected)
    assert same(cluster_split(frame.select("^f.$"), frame["label"], frame["domain"]), expected)
    lists = polars.DataFrame({"x": rows.tolist(), "label": labels.tolist(), "domain": domains})
    lists = lists.with_columns(polars.col("x").cast(polars.Array(polars.Float32, FEATURES)))
    lists.write_parquet(tmp_path / "lists.parquet")
    back = polars.read_parquet(tmp_path / "lists.parquet")
    assert same(cluster_split(back["x"], back["label"], back["domain"]), expected)
    assert run(["split", str(tmp_path / "lists.parquet"), "--out", str(tmp_path / "out"), "-q"]) == 0
    assert same(Split.load(tmp_path / "out"), expected)
    with pytest.raises(ValueError, match=r"X.collect\(\)"):
        cluster_split(frame.lazy(), labels)


def test_pandas_frames_give_the_same_split_whatever_their_index_and_column_names(
    rows: Any, labels: Any, domains: Any, expected: Split
) -> None:
    pandas = optional("pandas")
    frame = pandas.DataFrame(rows, index=np.arange(ROWS)[::-1] * 3)
    assert same(cluster_split(frame, pandas.Series(labels, index=frame.index), domains), expected)
    assert same(cluster_split(frame, pandas.Categorical(labels), domains), expected)
    whole = frame.assign(animal=labels, place=domains)
    assert same(cluster_split(whole, "animal", "place"), expected)
    whole = whole.assign(note="free text")
    assert same(cluster_split(whole, "animal", "place", columns=["0", "1", "[23]"]), expected)
    with pytest.raises(ValueError, match=r"'note' \(.*\)"):
        cluster_split(whole, "animal", "place")


def test_tensors_on_the_cpu_give_the_same_split(
    rows: Any, labels: Any, domains: Any, expected: Split
) -> None:
    torch = optional("torch")
    assert same(
        cluster_split(torch.tensor(rows, requires_grad=True), labels, torch.tensor(domains)), expected
    )
    with pytest.raises(ValueError, match=r"X.float\(\)"):
        cluster_split(torch.tensor(rows).bfloat16(), labels)


@pytest.mark.parametrize(
    "options", [{}, {"standardize": "zscore"}, {"standardize": "l2"}, {"kernel": "cosine"}]
)
@pytest.mark.parametrize("form", ["csr_array", "coo_matrix", "csc_array"])
def test_sparse_rows_give_the_split_of_dense_ones(
    options: dict[str, Any], form: str, labels: Any, domains: Any
) -> None:
    rows = np.random.default_rng(5).normal(size=(ROWS, 12))  # so many that no two rows are parallel
    dense = np.where(np.abs(rows) > 0.8, rows, 0)
    given = {"kernel": "linear", **options}
    one = cluster_split(dense, labels, domains, **given)
    other = cluster_split(getattr(scipy.sparse, form)(dense), labels, domains, **given)
    assert same(one, other)
    assert other.report.mmd.value == pytest.approx(one.report.mmd.value, rel=1e-9)
    assert one.report.bound is not None and other.report.bound is not None
    assert other.report.bound.mmd_upper == pytest.approx(one.report.bound.mmd_upper, rel=1e-6)


def test_sparse_rows_that_hardly_differ_from_their_mean_are_refused(labels: Any) -> None:
    rows = np.random.default_rng(5).normal(size=(len(labels), 3)) + 1e6
    with pytest.raises(ValueError, match="vary by too little around their mean"):
        cluster_split(scipy.sparse.csr_array(rows), labels, kernel="linear")


def test_sparse_rows_of_groups_give_the_split_of_dense_ones(labels: Any, domains: Any) -> None:
    rows = np.random.default_rng(6).normal(size=(ROWS, 12))
    dense = np.where(np.abs(rows) > 0.8, rows, 0)
    given = {"kernel": "linear", "tolerance": "auto", "groups": np.arange(ROWS) // 4}
    one = cluster_split(dense, labels, domains, **given)
    other = cluster_split(scipy.sparse.csr_array(dense), labels, domains, **given)
    assert same(one, other)
    assert other.report.mmd.value == pytest.approx(one.report.mmd.value, rel=1e-9)


def test_sparse_rows_are_never_made_dense() -> None:
    # Dense, these would take 3.2 GB.
    n, d = 4000, 100_000
    wide = scipy.sparse.random_array((n, d), density=1e-4, format="csr", rng=np.random.default_rng(0))
    options: dict[str, Any] = {"kernel": "linear", "effort": "fast", "restarts": 2, "memory": "1GB"}
    found = cluster_split(wide, np.arange(n) % 3, **options)
    assert len(found.val) == 801  # 267 of 1334, 267 of 1333 twice
    assert found.report.plan.bytes < 1e9
    assert found.report.bound is None
    with pytest.raises(ValueError, match="sparse features need a linear or cosine kernel, got kernel='rbf'"):
        cluster_split(wide[:100])


def test_a_transformer_embeds_the_rows_first(rows: Any, labels: Any, domains: Any) -> None:
    texts = [str(place) for place in range(ROWS)]
    by_function = cluster_split(
        texts, labels, domains, transformer=lambda given: rows[[int(t) for t in given]]
    )
    assert same(by_function, cluster_split(rows, labels, domains))
    decomposition = optional("sklearn.decomposition")
    unfitted = decomposition.PCA(2)
    found = cluster_split(rows, labels, domains, transformer=unfitted)
    fitted = decomposition.PCA(2).fit(rows)
    assert same(found, cluster_split(rows, labels, domains, transformer=fitted))
    assert same(found, cluster_split(fitted.transform(rows), labels, domains))
    assert not hasattr(unfitted, "components_")
    with pytest.raises(ValueError, match="made 3 rows of 120"):
        cluster_split(rows, labels, transformer=lambda given: given[:3])
    with pytest.raises(ValueError, match="no transform method"):
        cluster_split(rows, labels, transformer="pca")


def test_without_labels_only_the_size_is_kept(rows: Any) -> None:
    found = cluster_split(rows, h=0.25)
    assert len(found.val) == 30
    assert [cell.cell for cell in found.report.constraints.cells] == [{}]
    assert same(found, cluster_split(rows, np.arange(ROWS) / 7, stratify="none", h=0.25))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"h": 1.5}, "h must lie strictly between 0 and 1, got 1.5; for example h=0.2"),
        ({"kernel": "gauss"}, "kernel='gauss' is unknown; choose one of rbf"),
        ({"max_iter": 2.5}, "max_iter must be an integer, got 2.5"),
        ({"random_state": -1}, "random_state must be at least 0, got -1"),
        ({"y": np.zeros(3)}, "there are 3 labels for 120 rows of X"),
        ({"y": np.arange(ROWS) / 7}, "numbers that are not whole"),
        ({"y": np.full((ROWS, 2), 2)}, "y has 2 columns, and column 0 holds 2, not only 0 and 1"),
        ({"y": [None, *"abcde" * 23, *"abcd"]}, "label has no value in 1 rows: 0"),
        ({"domains": [*range(ROWS - 1), "text"]}, "domain holds values that cannot name groups"),
        ({"domains": "place"}, "X has no column 'place'"),
        ({"stratify": "domain"}, "no domains were given; pass domains"),
        ({"stratify": "label,label"}, "repeated column"),
        ({"columns": "f*"}, "X has no column names"),
        ({"h": 0.001}, "no validation rows"),
        ({"memory": 1_000_000}, "more than the budget"),
        ({"memory": 2}, "is 2 bytes, less than any run takes"),
        ({"X": np.zeros((ROWS, 2, 2))}, r"X has shape \(120, 2, 2\)"),
        ({"X": np.full((ROWS, 2), "a")}, "features need numbers"),
        ({"X": [[1.0], [2.0, 3.0]]}, "X cannot be made an array"),
        ({"X": np.ones((ROWS, 2))}, "all features are constant"),
        ({"X": np.ones((1, 2)), "y": None}, "X has 1 usable row"),
    ],
)
def test_what_cannot_be_used_is_a_value_error_in_words_of_python(
    arguments: dict[str, Any], message: str, rows: Any, labels: Any
) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        cluster_split(**{"X": rows, "y": labels, **arguments})
    assert isinstance(caught.value, ClusterSplitError)
    assert "--" not in str(caught.value)


@pytest.mark.parametrize("as_given", [np.asarray, scipy.sparse.csr_array])
def test_rows_that_are_not_finite_are_refused_by_number_or_left_out(
    as_given: Callable[[Any], Any], rows: Any, labels: Any
) -> None:
    broken = rows.astype(np.float64)
    broken[[5, 50], 1] = np.nan, np.inf
    options = {"kernel": "linear"}
    with pytest.raises(ValueError, match=r"2 of 120 rows of X .*5.*50.*drop_invalid=True"):
        cluster_split(as_given(broken), labels, **options)
    found = cluster_split(as_given(broken), labels, drop_invalid=True, **options)
    assert set(range(ROWS)) - {*found.train.tolist(), *found.val.tolist()} == {5, 50}
    kept = np.delete(np.arange(ROWS), [5, 50])
    assert np.array_equal(found.val, kept[cluster_split(broken[kept], labels[kept], **options).val])


def test_warnings_of_the_report_are_python_warnings_once_each(rows: Any, labels: Any) -> None:
    with pytest.warns(ClusterSplitWarning, match="almost the identity.*; try gamma='scale'") as caught:
        found = cluster_split(rows, labels, gamma=1e6)
    assert len(caught) == len(found.report.warnings)
    assert all(Path(warning.filename) == Path(__file__) for warning in caught)


def test_nothing_is_printed(rows: Any, labels: Any, capfd: pytest.CaptureFixture[str]) -> None:
    cluster_split(rows, labels)
    assert capfd.readouterr() == ("", "")


def test_random_states_may_be_generators_and_none(rows: Any, labels: Any) -> None:
    seeds = [
        cluster_split(rows, labels, random_state=state, restarts=1, effort="fast").report.seed
        for state in (np.random.RandomState(3), np.random.default_rng(3), None)
    ]
    again = cluster_split(rows, labels, random_state=np.random.RandomState(3), restarts=1, effort="fast")
    assert again.report.seed == seeds[0]
    assert len(set(seeds)) == 3


def test_a_run_directory_is_read_back_as_it_was_written(
    rows: Any, labels: Any, domains: Any, expected: Split, tmp_path: Path
) -> None:
    loaded = command_line(tmp_path, table_of(rows, labels, domains), "--format", "txt")
    assert same(loaded, expected)
    text = (tmp_path / "out" / "report.json").read_text("utf-8")
    assert render_json(loaded.report) == text
    assert repr(loaded).startswith(f"Split({len(loaded.train)} train, {len(loaded.val)} val, MMD 0.")
    with pytest.raises(ValueError, match="does not exist"):
        Split.load(tmp_path / "nowhere")
    broken = json.loads(text)
    del broken["sizes"]["val"]
    (tmp_path / "out" / "report.json").write_text(json.dumps(broken))
    with pytest.raises(ClusterSplitError, match=r"sizes\.val is missing, and should be an integer or null"):
        Split.load(tmp_path / "out")


def test_a_predefined_split_has_the_validation_rows_as_its_only_fold(
    expected: Split, rows: Any, labels: Any
) -> None:
    optional("sklearn")
    ((train, val),) = expected.to_predefined_split().split()
    np.testing.assert_array_equal(train, expected.train)
    np.testing.assert_array_equal(val, expected.val)
    broken = rows.copy()
    broken[0] = np.nan
    partial = cluster_split(broken, labels, drop_invalid=True)
    with pytest.raises(
        ValueError, match=r"1 of 120 rows are on neither side.*cv=\[\(split.train, split.val\)\]"
    ):
        partial.to_predefined_split()


def test_mmd_of_the_two_sides_is_what_the_report_says(rows: Any, labels: Any, domains: Any) -> None:
    for options in (
        {},
        {"standardize": "zscore"},
        {"kernel": "linear"},
        {"kernel": "polynomial", "degree": 2},
    ):
        found = cluster_split(rows, labels, domains, **options)
        value = mmd(rows[found.train], rows[found.val], **options)
        assert value == pytest.approx(found.report.mmd.value, rel=1e-5)
        assert mmd(rows[found.train], rows[found.val], squared=True, **options) == pytest.approx(value**2)


def test_mmd_follows_its_definition() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))

    def kernel(a: Any, b: Any) -> Any:
        return np.exp(-0.3 * ((a[:, None] - b[None]) ** 2).sum(axis=2))

    biased = kernel(X, X).mean() + kernel(Y, Y).mean() - 2 * kernel(X, Y).mean()
    assert mmd(X, Y, gamma=0.3, squared=True) == pytest.approx(biased, rel=1e-9)
    pairs = [(kernel(Z, Z).sum() - len(Z)) / (len(Z) * (len(Z) - 1)) for Z in (X, Y)]
    unbiased = sum(pairs) - 2 * kernel(X, Y).mean()
    assert mmd(X, Y, gamma=0.3, squared=True, estimator="unbiased") == pytest.approx(unbiased, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"Y": np.ones((4, 2))}, "X has 3 features and Y has 2"),
        ({"Y": scipy.sparse.csr_array(np.ones((4, 3)))}, "Y is sparse"),
        ({"Y": np.full((4, 3), np.nan)}, "Y has no rows, or NaN"),
        ({"estimator": "best"}, "estimator 'best' is unknown"),
        ({"estimator": "unbiased"}, "pass squared=True"),
    ],
)
def test_mmd_refuses_what_it_cannot_compare(arguments: dict[str, Any], message: str) -> None:
    X = np.arange(12.0).reshape(4, 3)
    with pytest.raises(ValueError, match=message):
        mmd(**{"X": X, "Y": X + 1, **arguments})


def test_importing_the_package_loads_nothing_heavy_and_offers_everything() -> None:
    probe = (
        "import sys, clustersplit; "
        "heavy = {'numpy', 'scipy', 'pyarrow', 'pandas', 'polars', 'sklearn', 'pulp'}; "
        "print(sorted(heavy & set(sys.modules))); "
        "assert set(clustersplit.__all__) <= set(dir(clustersplit)); "
        "from clustersplit import cluster_split; "
        "print(sorted({'pandas', 'polars', 'sklearn', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
    import clustersplit

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        clustersplit.nonsense  # noqa: B018


def test_without_scikit_learn_the_splitters_say_what_to_install() -> None:
    probe = "import sys; sys.modules['sklearn'] = None\nfrom clustersplit import ClusterShuffleSplit"
    done = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "pip install scikit-learn" in done.stderr.splitlines()[-1]


def test_dense_arrays_are_not_copied() -> None:
    X = np.ones((4, 2))
    assert np.shares_memory(as_rows(X).matrix, X)


def test_splits_differ_when_one_in_twenty_validation_rows_does() -> None:
    one = np.arange(400) < 100
    assert not are_different(one, np.roll(one, 4))
    assert are_different(one, np.roll(one, 5))


def test_warnings_stay_away_when_there_is_nothing_to_say(rows: Any, labels: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cluster_split(rows, labels)
