"""The same rows, options and seed give the same bytes, however they are stored and computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

ROWS, FEATURES = 700, 48


@pytest.fixture(scope="module")
def wide() -> pa.Table:
    """Enough rows and features for BLAS to use its threads, and many equal rows for ties to show."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    x[ROWS // 2 :] = x[rng.integers(0, 40, ROWS - ROWS // 2)]
    columns = {f"f{column}": x[:, column] for column in range(FEATURES)}
    return pa.table({**columns, "label": rng.integers(0, 3, ROWS), "domain": rng.integers(0, 2, ROWS)})


def index_files(out: Path) -> list[bytes]:
    return [(out / name).read_bytes() for name in ("train.npy", "val.npy")]


@pytest.mark.parametrize("kernel", [("--kernel", "rbf"), ("--nystrom", "60")], ids=["dense", "nystrom"])
def test_threads_of_any_kind_do_not_change_a_byte(
    kernel: tuple[str, str], process: Callable[..., Any], folder: Path, wide: pa.Table
) -> None:
    pq.write_table(wide, folder / "wide.parquet")
    results = []
    for number, (blas, threads) in enumerate((("1", "1"), ("2", "2"), ("2", "1"))):
        limits = {"OPENBLAS_NUM_THREADS": blas, "OMP_NUM_THREADS": blas, "MKL_NUM_THREADS": blas}
        arguments = ("wide.parquet", *kernel, "--threads", threads, "--certify", "never", "-q")
        done = process("split", *arguments, "--out", f"out{number}", **limits)
        assert done.code == 0, done.err
        results.append(index_files(folder / f"out{number}"))
    assert results[1:] == results[:1] * 2


def scalar_parquet(folder: Path, table: pa.Table) -> list[str]:
    pq.write_table(table, folder / "in.parquet")
    return ["in.parquet"]


def small_row_groups(folder: Path, table: pa.Table) -> list[str]:
    pq.write_table(table, folder / "in.parquet", row_group_size=37, compression="none")
    return ["in.parquet"]


def several_files(folder: Path, table: pa.Table) -> list[str]:
    (folder / "in").mkdir()
    for number, start in enumerate(range(0, ROWS, 150)):
        pq.write_table(table.slice(start, 150), folder / "in" / f"part-{number}.parquet")
    return ["in"]


def list_column(folder: Path, table: pa.Table) -> list[str]:
    x = _matrix(table)
    lists = {"embedding": pa.array(list(x)), "label": table["label"], "domain": table["domain"]}
    pq.write_table(pa.table(lists), folder / "in.parquet", row_group_size=100)
    return ["in.parquet"]


def fixed_size_list_column(folder: Path, table: pa.Table) -> list[str]:
    embedding = pa.FixedSizeListArray.from_arrays(pa.array(_matrix(table).ravel()), FEATURES)
    lists = {"embedding": embedding, "label": table["label"], "domain": table["domain"]}
    pq.write_table(pa.table(lists), folder / "in.parquet")
    return ["in.parquet"]


def feather(folder: Path, table: pa.Table) -> list[str]:
    pa.feather.write_feather(table, folder / "in.feather", chunksize=64)
    return ["in.feather"]


def plain_array(folder: Path, table: pa.Table) -> list[str]:
    np.save(folder / "in.npy", _matrix(table))
    return ["in.npy", *_companions(folder, table)]


def array_in_columns_first_order(folder: Path, table: pa.Table) -> list[str]:
    np.save(folder / "in.npy", np.asfortranarray(_matrix(table)))
    return ["in.npy", *_companions(folder, table)]


def archive(folder: Path, table: pa.Table) -> list[str]:
    np.savez_compressed(folder / "in.npz", X=_matrix(table), label=table["label"], domain=table["domain"])
    return ["in.npz"]


def structured_array(folder: Path, table: pa.Table) -> list[str]:
    kinds = [(name, table[name].to_numpy().dtype) for name in table.column_names]
    records = np.zeros(ROWS, dtype=kinds)
    for name in table.column_names:
        records[name] = table[name].to_numpy()
    np.save(folder / "in.npy", records)
    return ["in.npy"]


def _matrix(table: pa.Table) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.column_stack([table[f"f{column}"].to_numpy() for column in range(FEATURES)])


def _companions(folder: Path, table: pa.Table) -> list[str]:
    np.save(folder / "y.npy", table["label"].to_numpy())
    np.save(folder / "d.npy", table["domain"].to_numpy())
    return ["--label-file", "y.npy", "--domain-file", "d.npy"]


LAYOUTS = [
    small_row_groups,
    several_files,
    list_column,
    fixed_size_list_column,
    feather,
    plain_array,
    array_in_columns_first_order,
    archive,
    structured_array,
]


@pytest.fixture
def indices(split: Callable[..., Any], folder: Path) -> Callable[[list[str]], list[bytes]]:
    def call(arguments: list[str]) -> list[bytes]:
        done = split(*arguments, "--certify", "never", "-q", "--out", "out", "--force")
        assert done.code == 0, done.err
        return index_files(folder / "out")

    return call


@pytest.mark.parametrize("layout", LAYOUTS, ids=[layout.__name__ for layout in LAYOUTS])
def test_the_layout_of_the_input_does_not_change_a_byte(
    layout: Callable[[Path, pa.Table], list[str]],
    indices: Callable[[list[str]], list[bytes]],
    folder: Path,
    wide: pa.Table,
) -> None:
    expected = indices(scalar_parquet(folder, wide))
    (folder / "in.parquet").unlink()
    assert indices(layout(folder, wide)) == expected


def test_csv_gives_the_bytes_of_the_same_numbers_in_parquet(
    indices: Callable[[list[str]], list[bytes]], folder: Path, wide: pa.Table
) -> None:
    """CSV has no float32, so its numbers are compared with the same numbers as float64."""
    pa.csv.write_csv(wide, folder / "in.csv")
    pq.write_table(pa.csv.read_csv(folder / "in.csv"), folder / "in.parquet")
    assert indices(["in.csv"]) == indices(["in.parquet"])
