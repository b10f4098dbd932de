"""Two samples: the permutation test and the witness, against formulas and the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustersplit import mmd, permutation_test, witness
from clustersplit_cli.cli.app import run

GAMMA = 0.3


def gram(a: Any, b: Any) -> Any:
    return np.exp(-GAMMA * ((a[:, None] - b[None]) ** 2).sum(axis=2))


@pytest.fixture(scope="module")
def samples() -> tuple[Any, Any]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(30, 3)), rng.normal(size=(25, 3)) + 0.4


def test_the_witness_follows_its_definition(samples: Any) -> None:
    X, Y = samples
    of_X, of_Y = witness(X, Y, gamma=GAMMA)
    np.testing.assert_allclose(of_X, gram(X, Y).mean(1) - gram(X, X).mean(1), rtol=1e-9)
    np.testing.assert_allclose(of_Y, gram(Y, Y).mean(1) - gram(Y, X).mean(1), rtol=1e-9)
    assert of_Y.mean() - of_X.mean() == pytest.approx(mmd(X, Y, gamma=GAMMA, squared=True), rel=1e-9)


def test_the_p_value_is_that_of_the_definition(samples: Any) -> None:
    X, Y = samples
    found = permutation_test(X, Y, gamma=GAMMA, permutations=400, random_state=1)
    K, n = gram(np.vstack(samples), np.vstack(samples)), len(X)

    def value(order: Any) -> float:
        z = np.full(len(K), 1 / (len(K) - n))
        z[order[:n]] = -1 / n
        return float(np.sqrt(max(z @ K @ z, 0)))

    rng = np.random.default_rng(0)
    drawn = np.array([value(rng.permutation(len(K))) for _ in range(400)])
    assert found.mmd == pytest.approx(value(np.arange(len(K))), rel=1e-9)
    assert found.random_mean == pytest.approx(drawn.mean(), rel=0.05)
    expected = (1 + (drawn >= found.mmd).sum()) / 401
    assert abs(found.p_value - expected) < 4 * np.sqrt(expected * (1 - expected) / 400) + 1 / 401
    far = permutation_test(X, Y + 5, gamma=GAMMA, permutations=99)
    assert (far.p_value, far.permutations) == (0.01, 99)
    assert repr(far).startswith("PermutationTest(MMD ")


def test_the_numbers_are_those_of_the_command_line(
    samples: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, rows in zip("XY", samples, strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    files = [str(tmp_path / f"{name}.npy") for name in "XY"]
    options = ["--permutations", "50", "--standardize", "zscore", "--seed", "4", "--json", "--quiet"]
    assert run(["mmd", *files, *options]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    found = permutation_test(*samples, permutations=50, standardize="zscore", random_state=4)
    assert (found.mmd, found.p_value) == (pair["value"], pair["p_value"])
    assert "50 permutations" in found.report.summary()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"permutations": 0}, "permutations must be at least 1, got 0"),
        ({"permutations": 2.5}, "permutations must be an integer, got 2.5"),
        ({"kernel": "gauss"}, "kernel='gauss' is unknown"),
        ({"Y": np.ones((4, 2))}, "X has 3 features and Y has 2"),
    ],
)
def test_what_cannot_be_tested_is_said(options: dict[str, Any], message: str, samples: Any) -> None:
    with pytest.raises(ValueError, match=message):
        permutation_test(**{"X": samples[0], "Y": samples[1], **options})
