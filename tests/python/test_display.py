"""`verbose=1`: progress in terminals, notebooks and logs."""

from __future__ import annotations

import sys
from io import StringIO
from typing import Any

import pytest

from clustersplit import (
    ClusterKFold,
    ClusterShuffleSplit,
    cluster_folds,
    cluster_parts,
    cluster_split,
    compare,
    permutation_test,
    verify,
    witness,
)


class Notebook(StringIO):
    """A stream like those of notebooks."""

    __module__ = "ipykernel.iostream"


def test_a_log_has_a_line_per_stage_and_the_seconds(
    data: Any, quick: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster_split(*data, verbose=1, **quick)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) > 3
    assert len(set(lines)) == len(lines)
    assert all(line.startswith("clustersplit: ") for line in lines)
    assert lines[-1].endswith(" s")


def test_a_notebook_has_one_line_that_is_written_over(
    data: Any, quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Notebook()
    monkeypatch.setattr(sys, "stderr", stream)
    cluster_split(*data, verbose=1, **quick)
    shown = stream.getvalue()
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert shown.count("\r") > 3
    widths = {len(piece.rstrip("\n")) for piece in shown.split("\r")[1:]}
    assert len(widths) == 1  # so that nothing of a longer line is left


def test_everything_that_takes_a_while_shows_it(
    data: Any, quick: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = data.X[:45], data.X[45:]
    split = cluster_split(*data, **quick)
    for call in (
        lambda: cluster_folds(*data, k=3, verbose=1, **quick),
        lambda: cluster_parts(*data, parts="a=0.5,b=0.5", verbose=1, **quick),
        lambda: list(ClusterShuffleSplit(verbose=1, random_state=5, **quick).split(*data[:2])),
        lambda: list(ClusterKFold(3, verbose=1, random_state=5, **quick).split(*data[:2])),
        lambda: verify(split, verbose=1),
        lambda: compare(*data, repeats=1, verbose=1, **quick),
        lambda: permutation_test(*sides, permutations=5, verbose=1),
        lambda: witness(*sides, verbose=1),
    ):
        call()
        assert "clustersplit: " in capsys.readouterr().err, call


@pytest.mark.parametrize("verbose", [-1, "loud", None])
def test_other_values_are_refused(verbose: Any, data: Any) -> None:
    with pytest.raises(ValueError, match="verbose must be 0 or 1"):
        cluster_split(*data, verbose=verbose)
