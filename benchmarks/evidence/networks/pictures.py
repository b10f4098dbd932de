"""The datasets: small pictures of ten digits in several domains, from the shared files.

- `spoken`: log-mel pictures of spoken digits, 20 bands x 40 frames, six speakers;
- `rotated`: 2,000 MNIST digits, dealt to six domains that are turned by 0 to 75 degrees;
- `mixed`: MNIST and USPS digits, each dealt to a plain, an inverted and a noisy domain.

No picture is in two domains, so none of an evaluation domain is trained on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import ndimage

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
ANGLES = (0, 15, 30, 45, 60, 75)
NOISE = 0.3
Pixels = NDArray[np.float32]
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Pictures of shape (n, 1, height, width), the label and the domain of each, and the domains' names."""

    pixels: Pixels
    labels: Codes
    domains: Codes
    names: tuple[str, ...]


def read(name: str) -> tuple[Pixels, Codes, NDArray[np.str_]]:
    """Features, labels and domains of a shared file."""
    table = pq.read_table(DATA / f"{name}.parquet")
    columns = [column for column in table.schema.names if column[0] == "f" and column[1:].isdigit()]
    features = np.stack([table[column].to_numpy() for column in columns], axis=1).astype(np.float32)
    labels = np.array(table["label"].to_pylist()).astype(np.int64)
    return features, labels, np.array(table["domain"].to_pylist()).astype(str)


def spoken() -> Pictures:
    """Spoken digits of six speakers."""
    features, labels, domains = read("fsdd_logmel800")
    names, codes = np.unique(domains, return_inverse=True)
    return Pictures(features.reshape(-1, 1, 20, 40), labels, codes, tuple(names.tolist()))


def deal(labels: Codes, hands: int) -> Codes:
    """Deal rows to as many hands, those of every label evenly; the same for the same labels."""
    shuffled = np.random.default_rng(0).permutation(len(labels))
    order = shuffled[np.argsort(labels[shuffled], kind="stable")]
    dealt = np.empty(len(labels), dtype=np.int64)
    dealt[order] = np.arange(len(labels)) % hands
    return dealt


def rotated() -> Pictures:
    """MNIST digits, turned."""
    features, labels, domains = read("mnist_usps")
    kept = domains == "mnist"
    pixels, labels = features[kept].reshape(-1, 16, 16).copy(), labels[kept]
    codes = deal(labels, len(ANGLES))
    for code, angle in enumerate(ANGLES):
        inside = codes == code
        pixels[inside] = ndimage.rotate(pixels[inside], angle, axes=(2, 1), reshape=False, order=1)
    return Pictures(pixels[:, None], labels, codes, tuple(f"{angle}°" for angle in ANGLES))


def mixed() -> Pictures:
    """MNIST and USPS digits: plain, inverted, noisy."""
    features, labels, domains = read("mnist_usps")
    pixels, codes = features.reshape(-1, 16, 16).copy(), np.empty(len(labels), dtype=np.int64)
    rng = np.random.default_rng(0)
    names = []
    for place, source in enumerate(("mnist", "usps")):
        inside = np.flatnonzero(domains == source)
        codes[inside] = 3 * place + deal(labels[inside], 3)
        names += [source, f"{source} inverted", f"{source} noisy"]
    inverted, noisy = codes % 3 == 1, codes % 3 == 2
    pixels[inverted] = 1 - pixels[inverted]
    noise = rng.normal(0, NOISE, pixels[noisy].shape)
    pixels[noisy] = np.clip(pixels[noisy] + noise, 0, 1).astype(np.float32)
    return Pictures(pixels[:, None], labels, codes, tuple(names))


DATASETS: dict[str, Callable[[], Pictures]] = {"rotated": rotated, "mixed": mixed, "spoken": spoken}
