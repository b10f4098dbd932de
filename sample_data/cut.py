"""Cut the sample data from the gas-sensor drift table: `python cut.py gas_drift.parquet`.

The same source gives the same values every time; nothing here is random.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

BATCHES = (1, 2, 6, 8, 9)  # the batches in which all six gases were measured
ROWS_PER_CELL = 90
FEATURES = tuple(f"f{index}" for index in range(64))  # the first eight of sixteen sensors


def rows_to_keep(labels: NDArray[np.str_], domains: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the rows of `BATCHES`, each (label, domain) cell thinned evenly to `ROWS_PER_CELL` rows."""
    kept = []
    for batch in BATCHES:
        for gas in np.unique(labels):
            cell = np.flatnonzero((labels == gas) & (domains == batch))
            count = min(ROWS_PER_CELL, cell.size)
            kept.append(cell[np.arange(count) * cell.size // max(count, 1)])
    return np.sort(np.concatenate(kept))


def cut(source: Path, destination: Path) -> None:
    """Read the full table at `source` and write the five sample files into `destination`."""
    table = pq.read_table(source, columns=[*FEATURES, "label", "domain"])
    labels = np.array(table["label"].to_pylist(), dtype=np.str_)
    domains = table["domain"].to_numpy().astype(np.int64)
    kept = rows_to_keep(labels, domains)
    labels, domains = labels[kept], domains[kept]
    features = np.stack([table[name].to_numpy()[kept] for name in FEATURES], axis=1).astype(np.float32)

    groups = {"label": pa.array(labels.tolist()), "domain": pa.array(domains)}
    scalars = {name: pa.array(features[:, index]) for index, name in enumerate(FEATURES)}
    lists = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), len(FEATURES))
    # Splitting floats into byte planes before compressing keeps the files small enough to commit.
    for name, columns, floats in (
        ("gas.parquet", scalars, list(FEATURES)),
        ("gas_list.parquet", {"features": lists}, ["features.list.element"]),
    ):
        pq.write_table(
            pa.table({**columns, **groups}),
            destination / name,
            compression="zstd",
            compression_level=19,
            use_dictionary=["label", "domain"],
            use_byte_stream_split=floats,
        )
    np.save(destination / "gas.npy", features)
    np.save(destination / "gas_label.npy", labels)
    np.save(destination / "gas_domain.npy", domains)


def main() -> None:
    """Parse the command line and cut."""
    parser = argparse.ArgumentParser(description="Cut the sample data from the gas-sensor drift table.")
    parser.add_argument("source", type=Path, help="Parquet file with columns f0..f127, label and domain")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="where the files go")
    arguments = parser.parse_args()
    cut(arguments.source, arguments.out)


if __name__ == "__main__":
    main()
