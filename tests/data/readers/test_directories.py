"""A directory of Parquet files is one dataset."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import Extent, ReadRequest
from clustersplit_cli.data.readers import peek
from clustersplit_cli.errors import InputError


def part(*numbers: float, **columns: object) -> pa.Table:
    """Rows that can be told apart by their first feature."""
    return pa.table({"x0": numbers, "x1": [0.5] * len(numbers), "label": ["a"] * len(numbers)} | columns)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "a=b"  # the root's own name is no partition


def first_column(dataset) -> list[float]:
    return dataset.features[:, 0].tolist()


def test_files_are_read_in_bytewise_order_of_their_relative_paths(folder, save, read) -> None:
    names = [
        "b.parquet",
        "a/z.parquet",
        "a-1.parquet",
        "B.parquet",
        "é.parquet",
        "a/y/deep.pq",
        "10.parquet",
        "9.parquet",
    ]
    for number, name in enumerate(names):
        save(part(number, number + 0.25), "a=b/" + name.replace(".pq", ".parquet"))
    (folder / "a/y/deep.parquet").rename(folder / "a/y/deep.pq")
    dataset = read(folder)
    expected = sorted(names, key=os.fsencode)
    assert [file.path for file in dataset.files] == [str(folder / name) for name in expected]
    assert first_column(dataset)[::2] == [names.index(name) for name in expected]
    assert dataset.n_rows == 16
    assert list(dataset.categories) == ["label"]


def test_hive_partitions_become_columns_typed_by_all_their_values(folder, save, read) -> None:
    save(part(1, 2), "a=b/domain=10/site=7/0.parquet")
    save(part(3), "a=b/domain=9/site=x/0.parquet")
    dataset = read(folder, id_column="site")
    assert dataset.categories["domain"].values == (9, 10)
    assert first_column(dataset) == [1, 2, 3]
    assert dataset.ids.to_pylist() == ["7", "7", "x"]


def test_a_partition_without_value_is_a_missing_value(folder, save, read) -> None:
    save(part(1, 2), "a=b/domain=x/0.parquet")
    save(part(3), "a=b/domain=__HIVE_DEFAULT_PARTITION__/0.parquet")
    with pytest.raises(InputError, match="'domain' has no value in 1 rows: 0"):
        read(folder)


def test_partition_values_are_unescaped(folder, save, read) -> None:
    save(part(1, 2), "a=b/site=east%20side/0.parquet")
    save(part(4), "a=b/site=a=b/0.parquet")
    save(part(5), "a=b/site=100%/0.parquet")
    assert read(folder, domain="site").categories["domain"].values == ("100%", "a=b", "east side")


def test_datasets_written_by_arrow_can_be_read(folder, read, scalar_table, features) -> None:
    pq.write_to_dataset(scalar_table, folder, partition_cols=["domain", "label"])
    dataset = read(folder, id_column="key")
    assert dataset.categories["label"].values == ("cat", "dog")
    assert dataset.categories["domain"].values == (1, 2, 3)
    order = [int(key[1:]) for key in dataset.ids.to_pylist()]
    np.testing.assert_array_equal(dataset.features, features[order])
    np.testing.assert_array_equal(dataset.categories["label"].codes, np.array([0, 1] * 6)[order])


def test_a_partition_may_be_a_feature_when_asked_for(folder, save, read) -> None:
    save(part(1, 2), "a=b/year=2001/0.parquet")
    save(part(3), "a=b/year=2002/0.parquet")
    dataset = read(folder, columns=("x0", "year"))
    np.testing.assert_array_equal(dataset.features, [[1, 2001], [2, 2001], [3, 2002]])


def test_a_partition_hides_a_column_of_its_name(folder, save, read) -> None:
    save(part(1, 2, domain=[7, 7]), "a=b/domain=1/0.parquet")
    save(part(3, domain=[7]), "a=b/domain=2/0.parquet")
    assert read(folder).categories["domain"].values == (1, 2)


def test_list_columns_may_span_files(folder, save, read) -> None:
    for i in range(3):
        save(pa.table({"v": [[float(i), 1.0]], "label": ["a"]}), f"a=b/{i}.parquet")
    assert read(folder).features.tolist() == [[0, 1], [1, 1], [2, 1]]
    assert peek(ReadRequest(folder)) == Extent(3, 2, 8)


def test_hidden_and_underscored_names_are_not_data(folder, save, read) -> None:
    save(part(1, 2), "a=b/_k=1/data.parquet")
    save(part(3, 4), "a=b/_k=1/_metadata.parquet")
    save(part(5, 6), "a=b/_temporary/data.parquet")
    save(part(7, 8), "a=b/.cache/data.parquet")
    save(part(9, 10), "a=b/.hidden.parquet")
    (folder / "_SUCCESS").touch()
    dataset = read(folder)
    assert first_column(dataset) == [1, 2]
    assert dataset.notes == ()


def test_other_files_are_ignored_and_reported(folder, save, read) -> None:
    save(part(1, 2), "a=b/data.parquet")
    save(part(3, 4), "a=b/part-0.parquet").rename(folder / "part-0")
    (folder / "README.md").write_text("hello")
    dataset = read(folder)
    assert first_column(dataset) == [1, 2, 3, 4]
    assert dataset.notes == (("files_ignored", "not Parquet, ignored: README.md"),)


@pytest.mark.parametrize("content", [None, "data.csv", ".hidden.parquet"])
def test_a_directory_without_data_is_an_error(content, folder, read) -> None:
    folder.mkdir()
    if content:
        (folder / content).write_text("a,b\n1,2\n")
    with pytest.raises(
        InputError, match="has no Parquet files" + ("; it holds data.csv" if content == "data.csv" else "")
    ):
        read(folder)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (part(3).drop_columns(["x1"]), "1.parquet lacks column 'x1', unlike .*0.parquet"),
        (part(3, x2=[1.0]), "1.parquet has a column 'x2', unlike .*0.parquet"),
        (
            part(3).set_column(1, "x1", pa.array([1], pa.int8())),
            "column 'x1' is int8 in .*1.parquet but double in",
        ),
        (
            part(3).set_column(2, "label", pa.array([1])),
            "column 'label' is int64 in .*1.parquet but string in",
        ),
    ],
)
def test_files_with_other_columns_are_refused_by_name(second, message, folder, save, read) -> None:
    save(part(1, 2), "a=b/0.parquet")
    save(second, "a=b/1.parquet")
    with pytest.raises(InputError, match=message):
        read(folder)


def test_columns_may_be_ordered_and_stored_differently(folder, save, read) -> None:
    save(part(1, 2), "a=b/0.parquet")
    third = part(3).set_column(2, "label", pa.array(["b"]).dictionary_encode())
    save(third.select(["label", "x1", "x0"]), "a=b/1.parquet")
    dataset = read(folder)
    assert first_column(dataset) == [1, 2, 3]
    assert dataset.categories["label"].values == ("a", "b")


def test_partitions_must_be_the_same_everywhere(folder, save, read) -> None:
    save(part(1, 2), "a=b/site=1/0.parquet")
    save(part(3), "a=b/other/0.parquet")
    with pytest.raises(InputError, match="unlike"):
        read(folder)


def test_a_damaged_member_is_named(folder, save, read) -> None:
    save(part(1, 2), "a=b/0.parquet")
    (folder / "1.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"1\.parquet cannot be read as Parquet"):
        read(folder)


def test_linked_folders_are_followed_but_not_in_circles(folder, save, read, tmp_path) -> None:
    save(part(1, 2), "elsewhere/0.parquet")
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(folder)
    assert first_column(read(folder)) == [1, 2]


def test_metadata_may_be_a_directory(folder, save, read) -> None:
    save(pa.table({"label": ["a", "b"]}), "a=b/0.parquet")
    save(pa.table({"label": ["a"]}), "a=b/1.parquet")
    dataset = read(save(np.eye(3), "x.npy"), metadata=folder)
    assert dataset.categories["label"].codes.tolist() == [0, 1, 0]
    assert [file.role for file in dataset.files] == ["features", "metadata", "metadata"]


def test_an_undecodable_folder_name_is_a_readable_value(tmp_path, save, read) -> None:
    for byte in (b"\xff", b"\xfe"):
        target = save(part(1, 2), "plain.parquet")
        folder = tmp_path / "set" / f"domain={os.fsdecode(byte)}"
        folder.mkdir(parents=True)
        target.rename(folder / "0.parquet")
    dataset = read(tmp_path / "set")
    assert dataset.categories["domain"].values == ("\\xfe", "\\xff")
    folders = {os.fsencode(Path(file.path).parent.name) for file in dataset.files}
    assert folders == {b"domain=\xff", b"domain=\xfe"}
