"""Every format gives the same dataset."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clustersplit_cli.data.dataset import Extent, ReadRequest
from clustersplit_cli.data.readers import load, parquet, peek
from clustersplit_cli.errors import InputError


def check(dataset, features, *, names=("f0", "f1", "f2"), columns=None) -> None:
    assert dataset.features.flags.c_contiguous
    np.testing.assert_array_equal(dataset.features, features)
    assert dataset.feature_names == names
    assert dataset.feature_columns == (columns or names)
    assert list(dataset.categories) == ["label", "domain"]
    assert dataset.categories["label"].values == ("cat", "dog")
    assert dataset.categories["domain"].values == (1, 2, 3)
    np.testing.assert_array_equal(dataset.categories["label"].codes, [0, 1] * 6)
    np.testing.assert_array_equal(dataset.categories["domain"].codes, [0, 0, 1, 1, 2, 2] * 2)
    assert dataset.categories["label"].codes.dtype == np.int32
    np.testing.assert_array_equal(dataset.rows, np.arange(12))
    assert dataset.rows.dtype == np.int64
    assert (dataset.n_rows, dataset.n_excluded, dataset.n_dropped) == (12, 0, 0)
    assert dataset.notes == ()


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "arrows"])
def test_scalar_columns_read_the_same_from_every_table_format(
    suffix, save, read, scalar_table, features
) -> None:
    dataset = read(save(scalar_table, f"data.{suffix}"))
    check(dataset, features)
    assert dataset.features.dtype == np.float32


def test_csv_features_are_float64_and_labels_get_the_type_they_spell(
    save, read, scalar_table, features
) -> None:
    dataset = read(save(scalar_table, "data.csv"))
    assert dataset.features.dtype == np.float64
    np.testing.assert_allclose(dataset.features, features, rtol=1e-6)
    assert dataset.categories["domain"].values == (1, 2, 3)
    assert dataset.categories["label"].values == ("cat", "dog")


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_csv_may_use_other_delimiters(delimiter, tmp_path, read) -> None:
    path = tmp_path / "data.txt"
    path.write_text("x0;x1;label\n1;2;a\n3;4.5;b\n".replace(";", delimiter))
    np.testing.assert_array_equal(read(path).features, [[1, 2], [3, 4.5]])


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "arrows"])
@pytest.mark.parametrize("kind", ["list", "large_list", "fixed_size_list"])
def test_a_list_column_is_the_features(suffix, kind, save, read, list_table, features) -> None:
    type_ = {
        "list": pa.list_(pa.float32()),
        "large_list": pa.large_list(pa.float32()),
        "fixed_size_list": pa.list_(pa.float32(), 3),
    }[kind]
    position = list_table.schema.get_field_index("embedding")
    table = list_table.set_column(position, "embedding", list_table.column("embedding").cast(type_))
    dataset = read(save(table, f"data.{suffix}"))
    check(dataset, features, names=("embedding[0]", "embedding[1]", "embedding[2]"), columns=("embedding",))
    assert dataset.features.dtype == np.float32


def test_sliced_and_chunked_lists_keep_their_rows(save, read, list_table, features) -> None:
    dataset = read(save(list_table.slice(3, 7), "data.feather"))
    np.testing.assert_array_equal(dataset.features, features[3:10])


def test_row_group_layout_does_not_matter(tmp_path, read, scalar_table, features) -> None:
    for size in (1, 5, 12):
        path = tmp_path / f"groups{size}.parquet"
        pq.write_table(scalar_table, path, row_group_size=size)
        check(read(path), features)


def test_a_tensor_extension_column_is_a_list_column(save, read, scalar_table, features) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(features)
    table = scalar_table.drop_columns(["f0", "f1", "f2"]).append_column("image", tensors)
    np.testing.assert_array_equal(read(save(table, "data.parquet")).features, features)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
def test_plain_arrays_keep_their_precision(order, dtype, save, read, features) -> None:
    values = features.astype(dtype, order=order)
    dataset = read(save(values, "data.npy"), stratify=())
    np.testing.assert_array_equal(dataset.features, values)
    assert dataset.features.dtype == np.dtype(dtype).newbyteorder("=")
    assert dataset.features.flags.c_contiguous
    assert dataset.feature_names == ("0", "1", "2")
    assert dataset.categories == {}


@pytest.mark.parametrize("order", ["C", "F"])
def test_label_and_domain_may_be_column_indices(order, save, read, features) -> None:
    roles = np.column_stack([[0, 1] * 6, [1, 1, 2, 2, 3, 3] * 2])
    values = np.asarray(np.hstack([features, roles]), order=order)
    dataset = read(save(values, "data.npy"), label="-2", domain="-1")
    np.testing.assert_array_equal(dataset.features, features)
    assert dataset.feature_names == ("0", "1", "2")
    assert dataset.categories["label"].values == (0, 1)
    assert dataset.categories["domain"].values == (1, 2, 3)
    assert all(type(value) is int for value in dataset.categories["domain"].values)


def test_an_index_outside_the_array_is_an_error(save, read, features) -> None:
    with pytest.raises(InputError, match=r"column -4 is outside .* 3 columns"):
        read(save(features, "data.npy"), label="-4")


@pytest.mark.parametrize("labels", [np.array(["cat", "dog"] * 6), np.array([b"cat", b"dog"] * 6)])
def test_companion_arrays_are_aligned_by_row(labels, save, read, features) -> None:
    domains = np.array([1, 1, 2, 2, 3, 3] * 2, np.uint8)
    dataset = read(
        save(features, "data.npy"),
        label_file=save(labels, "label.npy"),
        domain_file=save(domains[:, None], "domain.npy"),
    )
    check(dataset, features, names=("0", "1", "2"))
    assert [file.role for file in dataset.files] == ["features", "label", "domain"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_companions_may_be_text_with_one_value_a_line(ending, tmp_path, save, read, features) -> None:
    (tmp_path / "label.txt").write_bytes((ending.join(["cat", "dog"] * 6) + ending).encode())
    (tmp_path / "domain.txt").write_bytes(ending.join(map(str, [1, 1, 2, 2, 3, 3] * 2)).encode())
    dataset = read(
        save(features, "data.npy"), label_file=tmp_path / "label.txt", domain_file=tmp_path / "domain.txt"
    )
    check(dataset, features, names=("0", "1", "2"))


def test_an_empty_line_of_a_companion_is_a_row_without_a_value(tmp_path, save, read, features) -> None:
    (tmp_path / "label.txt").write_text("cat\n\n" * 6)
    with pytest.raises(InputError, match="column 'label' has no value in 6 rows: 1, 3, 5"):
        read(save(features, "data.npy"), label_file=tmp_path / "label.txt")


def test_an_archive_of_x_y_and_groups_has_labels_and_domains(save, read, features) -> None:
    named = {"y": np.array(["cat", "dog"] * 6), "groups": np.array([1, 1, 2, 2, 3, 3] * 2)}
    dataset = read(save({"X": features, **named}, "data.npz"))
    check(dataset, features, names=("X[0]", "X[1]", "X[2]"), columns=("X",))
    other = save({"X": features, **named, "label": np.arange(12)}, "both.npz")
    assert read(other).categories["label"].values == tuple(range(12))


def test_a_structured_array_has_its_fields_as_columns(save, read, features) -> None:
    records = np.zeros(12, [("f0", "f4"), ("label", "U3"), ("f1", ">f4"), ("domain", "i2"), ("f2", "f4")])
    for j in range(3):
        records[f"f{j}"] = features[:, j]
    records["label"], records["domain"] = ["cat", "dog"] * 6, [1, 1, 2, 2, 3, 3] * 2
    check(read(save(records, "data.npy")), features)


def test_a_vector_field_of_a_structured_array_is_a_list_column(save, read, features) -> None:
    records = np.zeros(12, [("embedding", "f4", (3,)), ("label", "S3"), ("domain", "i8")])
    records["embedding"], records["label"] = features, [b"cat", b"dog"] * 6
    records["domain"] = [1, 1, 2, 2, 3, 3] * 2
    names = ("embedding[0]", "embedding[1]", "embedding[2]")
    check(read(save(records, "data.npy")), features, names=names, columns=("embedding",))


@pytest.mark.parametrize("key", ["X", "features", "embeddings", "anything"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_archive_has_features_labels_and_domains_by_key(key, order, save, read, features) -> None:
    arrays = {"label": np.array(["cat", "dog"] * 6), "domain": np.array([1, 1, 2, 2, 3, 3] * 2)}
    path = save(
        arrays | {key: np.asarray(features, order=order), "classes": np.array(["cat", "dog"])}, "data.npz"
    )
    check(read(path), features, names=tuple(f"{key}[{j}]" for j in range(3)), columns=(key,))


def test_an_archive_prefers_the_conventional_key(save, read, features) -> None:
    arrays = {"other": features + 1, "X": features, "label": np.array([0, 1] * 6)}
    path = save(arrays, "data.npz")
    np.testing.assert_array_equal(read(path).features, features)
    np.testing.assert_array_equal(read(path, columns=("other",)).features, features + 1)


def test_arrays_of_an_archive_must_have_one_length(save, read, features) -> None:
    path = save({"X": features, "label": np.array([0, 1] * 5)}, "data.npz")
    with pytest.raises(InputError, match=r"'label' .* shape \(10,\), but the features have 12 rows"):
        read(path)


@pytest.mark.parametrize("suffix", ["parquet", "csv", "feather", "arrows"])
def test_metadata_supplies_labels_and_domains(suffix, save, read, scalar_table, features) -> None:
    metadata = save(scalar_table.select(["key", "label", "domain"]), f"meta.{suffix}")
    dataset = read(save(features, "data.npy"), metadata=metadata, id_column="key")
    check(dataset, features, names=("0", "1", "2"))
    assert dataset.ids.to_pylist() == [f"k{i}" for i in range(12)]
    assert dataset.id_name == "key"
    assert [file.role for file in dataset.files] == ["features", "metadata"]


def test_metadata_wins_over_the_features_file_and_says_so(save, read, scalar_table) -> None:
    metadata = save(pa.table({"label": ["z", "y"] * 6}), "meta.csv")
    dataset = read(save(scalar_table, "data.parquet"), metadata=metadata, stratify=("label",))
    assert dataset.categories["label"].values == ("y", "z")
    assert [code for code, _ in dataset.notes] == ["column_in_both"]


def test_content_decides_before_the_name(save, read, scalar_table, features, tmp_path) -> None:
    disguised = save(scalar_table, "data.parquet").rename(tmp_path / "data.csv")
    check(read(disguised), features)


@pytest.mark.parametrize(
    "name",
    [
        "a b.csv",
        "-x",
        "*",
        "100%.csv",
        "a=b",
        "new\nline",
        b"\xff\xfe raw".decode("utf-8", "surrogateescape"),
    ],
)
@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "npy", "npz"])
def test_any_file_name_works(name, suffix, save, read, scalar_table, features, tmp_path) -> None:
    data = {"npy": features, "npz": {"X": features}}.get(suffix, scalar_table)
    path = save(data, f"plain.{suffix}").rename(tmp_path / name)
    dataset = read(path, stratify=())
    assert dataset.features.shape == (12, 3)
    reported = dataset.files[0].path
    assert reported == str(path)
    assert Path(json.loads(json.dumps(reported))).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow", "npy", "npz"])
@pytest.mark.parametrize("part", [0.5, 0.95])
def test_a_truncated_file_is_an_error_of_one_line(suffix, part, save, read, list_table, features) -> None:
    big = np.tile(features, (50, 1))
    data = {"npy": big, "npz": {"X": big}}.get(suffix, list_table)
    path = save(data, f"data.{suffix}")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(InputError) as caught:
        read(path, stratify=())
    assert "data." in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_peek_sees_that_an_array_is_incomplete(suffix, save, features) -> None:
    path = save(features, "data.npy")
    content = path.read_bytes().replace(b"(12, 3)", b"(99, 3)")
    path.write_bytes(content)
    if suffix == "npz":
        path = path.with_suffix(".npz")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", content)
    with pytest.raises(InputError, match=r"truncated: shape \(99, 3\) takes 1316 bytes, there are 272"):
        peek(ReadRequest(path, stratify=()))


def test_csv_fields_may_hold_line_breaks_anywhere(tmp_path, read) -> None:
    path, n = tmp_path / "data.csv", 50_000
    path.write_text("x0,x1,text,label\n" + "".join(f'{i},1,"{"a" * 60}\n{"b" * 40}",c\n' for i in range(n)))
    np.testing.assert_array_equal(read(path).features[:, 0], np.arange(n))


def test_a_damaged_column_is_an_error_of_one_line(save, read, scalar_table) -> None:
    path = save(scalar_table, "data.parquet")
    content = bytearray(path.read_bytes())
    content[4:80] = bytes(76)
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.parquet", b"a,b\n1,2\n", "Parquet expected by its name, found text"),
        (
            "data.npy",
            b"\x00\x01\x02\x03",
            "NPY expected by its name, found bytes that start with 00 01 02 03",
        ),
        ("data.bin", b"\x00\x01\x02\x03", "unknown format"),
        ("data.csv", b"", "is empty"),
        ("data.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), "is gzip, which is not supported"),
        ("data.csv", b"\n\n", "no header"),
        ("data.csv", b"1.5,2.5\n3.5,4.5\n", "has no header"),
        ("data.csv", b"x0,x1,label\n1,2,a\n1,2\n", "Expected 3 columns, got 2"),
        ("data.csv", b"x0,x0,label\n1,2,a\n1,2,b\n", "two columns named 'x0'"),
        ("data.csv", b"x0,x1,label\n1,2,\xff\xfe\n", "(?i)utf-?8"),
        ("data.npz", b"PK\x05\x06" + bytes(18), "without NumPy arrays"),
        ("data.npy", b"\x93NUMPY\x01\x00\x10\x00{'descr': 'nope'", "header is malformed"),
        ("data.npy", b"\x93NUMPY\x01\x00\xff\x00{'descr'", "header is incomplete"),
        ("data.npy", b"\x93NUMPY", "is not a NumPy array"),
    ],
)
def test_wrong_content_is_explained(name, content, message, tmp_path, read) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "\n" not in caught.value.message


def test_pickled_arrays_are_never_loaded(save, read, tmp_path) -> None:
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "exploded",))

    for path in (save(np.array([Bomb()]), "data.npy"), save({"X": np.array([[Bomb()]])}, "data.npz")):
        with pytest.raises(InputError, match="pickled"):
            read(path)
    with pytest.raises(InputError, match="pickled"):
        read(save(np.eye(3), "fine.npy"), label_file=tmp_path / "data.npy")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("shape", [(12,), (2, 3, 4), ()])
def test_an_array_that_is_not_two_dimensional_is_an_error(shape, save, read) -> None:
    with pytest.raises(InputError, match="two dimensions"):
        read(save(np.zeros(shape), "data.npy"))


def test_a_missing_file_names_the_closest_ones(tmp_path, read) -> None:
    (tmp_path / "features.parquet").touch()
    with pytest.raises(InputError, match="does not exist") as caught:
        read(tmp_path / "featurs.parquet")
    assert "features.parquet" in caught.value.hint
    with pytest.raises(InputError, match="nor does its folder"):
        read(tmp_path / "nowhere" / "features.parquet")


def test_a_pipe_is_refused(tmp_path, read) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        read(tmp_path / "pipe")


def test_companions_of_the_wrong_kind_are_explained(save, read, scalar_table, features) -> None:
    table, array = save(scalar_table, "t.parquet"), save(features, "a.npy")
    with pytest.raises(InputError, match="is Parquet, but --label-file needs a NPY array"):
        read(array, label_file=table)
    with pytest.raises(InputError, match="is NPY, but --metadata needs a table"):
        read(table, metadata=array)
    with pytest.raises(InputError, match="needs one value per row"):
        read(array, label_file=array)


@pytest.mark.parametrize(
    ("suffix", "rows", "width"),
    [
        ("parquet", 12, 3),
        ("feather", 12, None),
        ("arrows", None, None),
    ],
)
def test_peek_sees_list_columns_without_reading(suffix, rows, width, save, list_table) -> None:
    assert peek(ReadRequest(save(list_table, f"data.{suffix}"))) == Extent(rows, width, 4)


def test_peek_sees_arrays_and_scalars_without_reading(save, scalar_table, features) -> None:
    assert peek(ReadRequest(save(scalar_table, "a.parquet"))) == Extent(12, 3, 4)
    assert peek(ReadRequest(save(scalar_table, "a.csv"))) == Extent(None, 3, 8)
    assert peek(ReadRequest(save(features, "a.npy"), label="0")) == Extent(12, 2, 4)
    assert peek(ReadRequest(save({"X": features}, "a.npz"), stratify=())) == Extent(12, 3, 4)


def test_progress_ends_with_all_rows(save, scalar_table) -> None:
    calls: list[tuple[str, int, int]] = []
    load(ReadRequest(save(scalar_table, "a.arrow")), lambda *call: calls.append(call))
    assert calls[-1] == ("read", 12, 12)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


@pytest.mark.parametrize("small", [0, 600, 10**9])
def test_row_groups_of_lists_come_in_order_however_many_are_read_at_a_time(
    small, tmp_path, read, monkeypatch
) -> None:
    monkeypatch.setattr(parquet, "SMALL_GROUP_BYTES", small)
    values = np.random.default_rng(0).standard_normal((300, 4)).astype(np.float32)
    schema = pa.schema([("v", pa.list_(pa.float32())), ("label", pa.string())])
    with pq.ParquetWriter(tmp_path / "data.parquet", schema) as file:
        # With 32 bytes a row, some of these groups are small at 600 bytes and some are not.
        for part in np.split(values, [5, 45, 55, 60, 200, 210]):
            labels = ["a", "b"] * (len(part) // 2) + ["a"] * (len(part) % 2)
            file.write_table(pa.table([part.tolist(), labels], schema=schema))
    assert pq.ParquetFile(tmp_path / "data.parquet").num_row_groups == 7
    assert np.array_equal(read(tmp_path / "data.parquet").features, values)


def test_a_damaged_row_group_of_lists_is_one_line(tmp_path, read) -> None:
    values = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"v": values.tolist(), "label": ["a", "b"] * 2000}), path, row_group_size=500)
    column = pq.ParquetFile(path).metadata.row_group(5).column(0)
    held = bytearray(path.read_bytes())
    held[column.dictionary_page_offset : column.dictionary_page_offset + column.total_compressed_size] = (
        bytes(column.total_compressed_size)
    )
    path.write_bytes(held)
    with pytest.raises(InputError, match=r"data\.parquet cannot be read as Parquet: [^\n]+$"):
        read(path)
