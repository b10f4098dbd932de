"""The features of the recipes, against known images and other code."""

from __future__ import annotations

import colorsys
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "embeddings.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def recipes() -> dict[str, Any]:
    """The functions that the page defines."""
    names: dict[str, Any] = {"np": np}
    for code in BLOCK.findall(PAGE.read_text("utf-8")):
        if "def " in code:
            exec(compile(code, str(PAGE), "exec"), names)
    return names


@pytest.fixture(scope="module")
def images() -> Any:
    return np.random.default_rng(0).random((5, 8, 6, 3))


def test_every_recipe_has_at_most_ten_lines() -> None:
    for code in BLOCK.findall(PAGE.read_text("utf-8")):
        for piece in re.split(r"\n{3,}", code.replace("import numpy as np\n", "")):
            lines = [line for line in piece.splitlines() if line.strip()]
            assert 0 < len(lines) <= 10, piece


def test_hues_are_those_of_the_standard_library(recipes: dict[str, Any], images: Any) -> None:
    found = recipes["hue_histogram"](images, bins=12)
    for image, shares in zip(images, found, strict=True):
        wanted = np.zeros(12)
        for pixel in image.reshape(-1, 3):
            hue = colorsys.rgb_to_hsv(*pixel)[0]
            wanted[min(int(hue * 12), 11)] += pixel.max() - pixel.min()
        np.testing.assert_allclose(shares, wanted / wanted.sum(), rtol=1e-9)
    plain = np.zeros((4, 3, 3, 3))
    plain[0, ..., 0] = plain[1, ..., 1] = plain[2, ..., 2] = 1  # red, green, blue and black
    shares = recipes["hue_histogram"](plain, bins=3)
    np.testing.assert_allclose(shares, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], atol=1e-9)


def test_brightness_and_contrast_are_those_of_grey_images(recipes: dict[str, Any]) -> None:
    grey = np.array([[0.2, 0.8], [0.2, 0.8]])
    image = np.repeat(grey[None, :, :, None], 3, axis=3)
    np.testing.assert_allclose(recipes["brightness_and_contrast"](image), [[0.5, 0.3]])


def test_edges_are_where_the_luminance_steps(recipes: dict[str, Any]) -> None:
    step = np.zeros((2, 6, 10, 3))
    step[1, :, 5:] = 1
    np.testing.assert_allclose(recipes["edge_density"](step), [[0.0], [0.2]])  # two of ten columns


def test_the_background_is_the_border(recipes: dict[str, Any]) -> None:
    framed = np.ones((1, 8, 8, 3))
    framed[0, 2:-2, 2:-2] = np.random.default_rng(0).random((4, 4, 3))
    np.testing.assert_allclose(recipes["background"](framed), [[1, 1, 1, 0, 0, 0]])


def test_noise_is_found_at_about_its_level(recipes: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    signal = np.sqrt(2) * np.sin(np.linspace(0, 8 * np.pi, 4000))  # of power 1
    noisy = np.stack([signal + rng.normal(scale=10 ** (-db / 20), size=4000) for db in (20, 10)])
    np.testing.assert_allclose(recipes["signal_to_noise"](noisy)[:, 0], [20, 10], atol=1)
