"""What callers get: taken apart, saved, drawn, pickled, shown."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from clustersplit import ClusterSplitWarning, Partition, Split, cluster_folds, cluster_parts, cluster_split
from clustersplit_cli.cli.app import run
from clustersplit_cli.python import results
from clustersplit_cli.reports.json_report import load_report


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def split(data: Any, quick: Any) -> Split:
    return cluster_split(*data, **quick)


@pytest.fixture(scope="module")
def folds(data: Any, quick: Any) -> Partition:
    return cluster_folds(*data, k=3, **quick)


def test_a_split_is_two_arrays_with_names(split: Split) -> None:
    train, val = split
    assert train is split.train
    assert val is split.val
    assert len(split) == 2
    assert same(dict(split.items()), {"train": train, "val": val})


def test_folds_are_pairs_and_parts_are_rows(data: Any, quick: Any, folds: Partition) -> None:
    pairs = list(folds)
    assert len(pairs) == len(folds) == 3
    for (train, val), (name, rows) in zip(pairs, folds.items(), strict=True):
        np.testing.assert_array_equal(val, rows)
        np.testing.assert_array_equal(val, folds[name])
        np.testing.assert_array_equal(np.union1d(train, val), np.arange(len(data.X)))
        assert not len(np.intersect1d(train, val))
    train, val, test = cluster_parts(*data, parts={"train": 0.6, "val": 0.2, "test": 0.2}, **quick)
    assert [len(train), len(val), len(test)] == [54, 18, 18]


def test_a_report_is_values_json_and_text(split: Split) -> None:
    report = split.report
    text = report.to_json()
    assert report.to_dict() == json.loads(text) == load_report(text)
    shown = report.summary()
    assert f"{len(split.val)} validation" in shown
    assert f"{report.mmd.value:.4f}"[:5] in shown
    assert "\x1b" not in shown


def test_a_repr_is_one_short_line(split: Split, folds: Partition) -> None:
    for found in (split, folds):
        assert len(repr(found)) < 100
        assert "\n" not in repr(found)


VARIANTS: dict[str, Callable[[Any, Any], Any]] = {
    "arrays": lambda d, q: cluster_split(d.X, d.y, d.domains, standardize="zscore", **q),
    "no labels": lambda d, q: cluster_split(d.X, **q),
    "half precision, linear": lambda d, q: cluster_split(d.X.astype(np.float16), d.y, kernel="linear", **q),
    "table": lambda d, q: cluster_split(table(d), "animal", "place", **q),
    "lists": lambda d, q: cluster_split(pa.table({"v": d.X.tolist(), "animal": d.y}), "animal", **q),
    "dropped": lambda d, q: cluster_split(broken(d.X), d.y, drop_invalid=True, **q),
    "groups": lambda d, q: cluster_split(d.X, d.y, groups=np.arange(len(d.X)) // 3, **q),
    "duplicates": lambda d, q: cluster_split(np.repeat(d.X[::2], 2, 0), groups="exact-duplicates", **q),
    "forced": lambda d, q: cluster_split(d.X, d.y, force_train=[0, 3], force_val=np.arange(90) == 5, **q),
    "families": lambda d, q: cluster_split(d.X, d.y, d.domains, stratify=["label", "domain"], **q),
    "array of cells": lambda d, q: cluster_split(d.X, d.y, stratify=np.arange(90) % 5, tolerance=0.5, **q),
    "bins": lambda d, q: cluster_split(d.X, d.X[:, 0], label_bins=4, **q),
    "tolerances": lambda d, q: cluster_split(d.X, d.y, tolerance=[0.1, "label=cat=0.2"], **q),
    "landmarks": lambda d, q: cluster_split(d.X, d.y, nystrom=20, **q),
    "graded": lambda d, q: cluster_split(d.X, d.y, severity=0.5, **q),
    "folds": lambda d, q: cluster_folds(d.X, d.y, k=3, **q),
    "folds of groups": lambda d, q: cluster_folds(d.X, groups=np.arange(90) // 3, k=3, **q),
    "parts": lambda d, q: cluster_parts(d.X, d.y, parts="train=0.6,val=0.2,test=0.2", **q),
}


def table(data: Any) -> pa.Table:
    columns = {f"f[{column}]": data.X[:, column] for column in range(4)}
    return pa.table({"animal": data.y, **columns, "place": data.domains})


def broken(rows: Any) -> Any:
    rows = rows.copy()
    rows[[4, 40], 1] = np.nan
    return rows


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore::clustersplit.ClusterSplitWarning")
def test_what_is_saved_passes_verify_wherever_it_is(
    name: str, data: Any, quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = VARIANTS[name](data, quick)
    assert made.save(tmp_path / "run") == tmp_path / "run"
    (tmp_path / "elsewhere" / "input").mkdir(parents=True)
    np.save(tmp_path / "elsewhere" / "input" / "features.npy", np.ones((3, 2)))  # is not taken for it
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "run").rename(tmp_path / "moved")
    assert run(["verify", str(tmp_path / "moved"), "--quiet"]) == 0
    assert same(dict(type(made).load(tmp_path / "moved").items()), dict(made.items()))


def test_report_and_mmd_take_what_is_saved(
    split: Split, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = split.save(tmp_path / "run")
    features = str(directory / "input" / "features.npy")
    assert run(["mmd", features, "--split", str(directory), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["mmd"]["value"] == split.report.mmd.value
    assert run(["report", str(directory), "--quiet"]) == 0
    assert (
        run(["split", "--config", str(directory / "report.json"), "-o", str(tmp_path / "again"), "-q"]) == 0
    )
    assert same(dict(Split.load(tmp_path / "again").items()), dict(split.items()))


def test_saved_features_that_change_are_noticed(split: Split, tmp_path: Path) -> None:
    directory = split.save(tmp_path / "run")
    features = np.load(directory / "input" / "features.npy")
    features[3, 1] += 1
    np.save(directory / "input" / "features.npy", features)
    assert run(["verify", str(directory), "--quiet"]) == 1


def test_a_file_may_be_named_instead_and_must_hold_the_same_rows(
    data: Any, split: Split, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("X.npy", data.X)
    np.save("y.npy", data.y)
    np.save("place.npy", data.domains)
    files = {"features": "X.npy", "label_file": "y.npy", "domain_file": "place.npy"}
    split.save("run", **files)
    assert not Path("run", "input").exists()
    inputs = ["X.npy", "--label-file", "y.npy", "--domain-file", "place.npy"]
    assert run(["split", *inputs, "-o", "ours", "-q", "--restarts", "2", "--effort", "fast"]) == 0
    one, other = (json.loads(Path(name, "report.json").read_text("utf-8")) for name in ("run", "ours"))
    for content in (one, other):
        content.pop("timing")
    assert one == other
    assert run(["verify", "run", "--quiet"]) == 0
    with pytest.raises(ValueError, match="run exists already; force=True replaces it"):
        split.save("run", **files)
    split.save("run", **files, force=True)
    np.save("X.npy", data.X[::-1].copy())
    with pytest.raises(ValueError, match="other values than those that were split: features"):
        split.save("other", **files)
    assert not Path("other").exists()


def test_what_has_no_rows_or_sparse_ones_says_so(data: Any, split: Split, tmp_path: Path) -> None:
    unpickled = pickle.loads(pickle.dumps(split))
    assert same(dict(unpickled.items()), dict(split.items()))
    assert unpickled.report == split.report
    assert len(pickle.dumps(split)) < len(pickle.dumps(split.report)) + 2000
    for found in (unpickled, Split.load(split.save(tmp_path / "run"))):
        with pytest.raises(ValueError, match="no rows to write"):
            found.save(tmp_path / "other")
    sparse = cluster_split(scipy.sparse.csr_array(data.X), data.y, kernel="linear", restarts=1)
    with pytest.raises(ValueError, match="X is sparse"):
        sparse.save(tmp_path / "sparse")
    assert not (tmp_path / "sparse").exists()
    assert "<svg" not in sparse._repr_html_()


def needs_pages() -> None:
    for name in ("jinja2", "plotly"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install '.[report]'")


def test_a_page_is_drawn_with_or_without_the_rows_at_hand(
    data: Any, split: Split, folds: Partition, tmp_path: Path
) -> None:
    needs_pages()
    page = split.to_html(tmp_path / "page.html").read_text("utf-8")
    assert re.search(r"cluster_split\(X, y, domains=domains, .*restarts=2, effort=&#39;fast&#39;\)", page)
    assert not re.search(r"(?:src|href)=\"https?:", page)
    loaded = Split.load(split.save(tmp_path / "run")).to_html(tmp_path / "loaded.html").read_text("utf-8")
    assert "clustersplit split" in loaded
    unpickled = pickle.loads(pickle.dumps(split))
    with pytest.raises(ValueError, match="no rows: it was unpickled; pass X, y and domains"):
        unpickled.to_html(tmp_path / "none.html")
    again = unpickled.to_html(tmp_path / "again.html", *data).read_text("utf-8")
    assert again == page
    with pytest.raises(ValueError, match=r"the MMD of these rows is .* and the report says"):
        unpickled.to_html(tmp_path / "none.html", data.X[::-1], data.y, data.domains)
    with pytest.raises(ValueError, match="X has 80 rows, and the report is about 90"):
        unpickled.to_html(tmp_path / "none.html", data.X[:80], data.y[:80], data.domains[:80])
    with pytest.raises(ValueError, match="exists already; force=True replaces it"):
        split.to_html(tmp_path / "page.html")
    assert not (tmp_path / "none.html").exists()
    assert "fold_2" in folds.to_html(tmp_path / "folds.html").read_text("utf-8")


def test_a_notebook_shows_figures_and_a_map_without_scripts(
    data: Any, split: Split, folds: Partition, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = split._repr_html_()
    assert "<script" not in shown
    assert shown.count("M") >= len(data.X)  # a dot for every row
    assert f"<b>{len(split.val)}" in shown or f">{len(split.val)}<" in shown
    assert "fold_1" in folds._repr_html_()
    with pytest.warns(ClusterSplitWarning):
        named = cluster_split(data.X, np.where(np.arange(90) < 2, "<b>", data.y), **quick)
    assert "<b>" not in named._repr_html_()
    monkeypatch.setattr(results, "MOST_ROWS_DRAWN", 50)
    assert "<svg" not in split._repr_html_()
    assert "<svg" not in pickle.loads(pickle.dumps(split))._repr_html_()


def test_rows_changed_afterwards_are_not_drawn_under_the_old_numbers(data: Any, quick: Any) -> None:
    rows = data.X.copy()
    found = cluster_split(rows, data.y, **quick)
    assert "<svg" in found._repr_html_()
    rows[:] = rows[::-1].copy()
    assert "<svg" not in found._repr_html_()


def test_a_saved_table_keeps_its_columns(data: Any, quick: Any, tmp_path: Path) -> None:
    made = cluster_split(table(data), "animal", "place", **quick)
    made.save(tmp_path / "run")
    assert pq.read_schema(tmp_path / "run" / "input" / "features.parquet").names == [
        f"f[{k}]" for k in range(4)
    ]
    assert pq.read_schema(tmp_path / "run" / "input" / "rows.parquet").names == ["label", "domain"]
