"""Tables of any size for the benchmarks of the engines: made block by block, the same on every machine."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP_ROWS = 50_000
CLUSTERS, LABELS, DOMAINS = 24, 5, 4


def make_table(folder: Path, rows: int, features: int, files: int) -> Path:
    """Write a directory of Parquet files with float32 embeddings in clusters, labels and domains."""
    folder.mkdir(parents=True, exist_ok=True)
    centres = np.random.default_rng(1).normal(size=(CLUSTERS, features)).astype(np.float32)
    edges = np.linspace(0, rows, files + 1).astype(int)
    for file in range(files):
        schema = pa.schema(
            [
                ("embedding", pa.list_(pa.float32(), features)),
                ("label", pa.int32()),
                ("domain", pa.string()),
            ]
        )
        with pq.ParquetWriter(folder / f"part-{file:03d}.parquet", schema, compression="none") as writer:
            for start in range(edges[file], edges[file + 1], GROUP_ROWS):
                count = min(GROUP_ROWS, edges[file + 1] - start)
                rng = np.random.default_rng([2, start])
                cluster = rng.integers(CLUSTERS, size=count)
                x = rng.standard_normal((count, features), dtype=np.float32) * np.float32(2.0)
                x += centres[cluster]
                # A cluster leans towards a label and a domain, as embeddings of real classes do.
                label = (cluster + (rng.random(count) < 0.5) * rng.integers(LABELS, size=count)) % LABELS
                domain = (
                    cluster // 3 + (rng.random(count) < 0.6) * rng.integers(DOMAINS, size=count)
                ) % DOMAINS
                writer.write_table(
                    pa.table(
                        {
                            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), features),
                            "label": pa.array(label, pa.int32()),
                            "domain": np.array(["art", "cartoon", "photo", "sketch"])[domain],
                        },
                        schema=schema,
                    )
                )
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--features", type=int, default=256)
    parser.add_argument("--files", type=int, default=20)
    given = parser.parse_args()
    make_table(given.folder, given.rows, given.features, given.files)
