"""Errors in the words of Python: parameters and values as a caller would write them."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clustersplit_cli
from clustersplit import ClusterSplitError, cluster_folds, cluster_split
from clustersplit_cli.options import OPTIONS
from clustersplit_cli.python.words import python_words

PACKAGE = Path(clustersplit_cli.__file__).parent


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("try --standardize zscore", "try standardize='zscore'"),
        ("use --kernel rbf, or --gamma median.", "use kernel='rbf', or gamma='median'."),
        ("for example --h 0.2", "for example h=0.2"),
        ("--h must lie strictly between 0 and 1, got 2", "h must lie strictly between 0 and 1, got 2"),
        ("--kernel 'gauss' is unknown", "kernel='gauss' is unknown"),
        ("--gamma has no meaning for the linear kernel", "gamma has no meaning for the linear kernel"),
        ("allow --memory 1.5GB", "allow memory='1.5GB'"),
        ("for example --stratify label,domain", "for example stratify='label,domain'"),
        ("try fewer columns in --stratify", "try fewer columns in stratify"),
        ("use --tolerance 'label=dog=0.2'", "use tolerance='label=dog=0.2'"),
        ("--tolerance auto finds that", "tolerance='auto' finds that"),
        ("choose one with --columns NAME", "choose one with columns"),
        ("cut numbers by --label-bins N, or", "cut numbers by label_bins, or"),
        ("--keep-together and folds", "groups and folds"),
        ("leave those rows out with --drop-invalid; row", "leave those rows out with drop_invalid=True; row"),
        ("--force replaces it", "force=True replaces it"),
        ("with --parts train=0.7,val=0.3", "with parts='train=0.7,val=0.3'"),
        ("use --nystrom 2000 or --nystrom off", "use nystrom=2000 or nystrom='off'"),
        ("raise --max-iter or --seed", "raise max_iter or random_state"),
    ],
)
def test_options_are_named_as_parameters_are(told: str, said: str) -> None:
    assert python_words(told) == said


def test_every_option_and_every_word_of_it_is_a_parameter_with_a_value() -> None:
    for name, option in OPTIONS.items():
        for word in option.words if name != "engine" else ():  # rows in memory have no other
            told = python_words(f"use {option.flag} {word}")
            assert re.fullmatch(rf"use \w+='{re.escape(word)}'", told), (name, told)


def test_no_message_keeps_a_flag() -> None:
    texts = {
        node.value
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "--" in node.value
    }
    assert len(texts) > 150
    kept = {text for text in texts if re.search(r"--[a-z]", python_words(text))}
    assert not kept


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, y: cluster_split(X, y, kernel="gauss"), "kernel='gauss' is unknown; choose one of rbf"),
        (
            lambda X, y: cluster_split(X, y, h=2),
            "h must lie strictly between 0 and 1, got 2; for example h=0.2",
        ),
        (
            lambda X, y: cluster_split(X, y, h=0.2, test_size=0.3),
            "h and test_size are names of one parameter",
        ),
        (lambda X, y: cluster_split(X, y, threads=1, n_jobs=2), "threads and n_jobs are names of one"),
        (lambda X, y: cluster_folds(X, y, k=3, n_splits=3), "k and n_splits are names of one parameter"),
        (lambda X, y: cluster_split(X, y, n_jobs=-2), "threads must be at least 1, got -2"),
        (lambda X, y: cluster_split(X, y, label_bins=1), "label_bins must be at least 2, got 1"),
        (lambda X, y: cluster_split(X, y, label_bins="many"), "label_bins must be an integer or 'auto'"),
    ],
)
def test_an_error_is_one_without_another_before_it(call: Any, message: str, data: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        call(data.X, data.y)
    assert isinstance(caught.value, ClusterSplitError)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_other_names_give_the_same(data: Any, quick: Any) -> None:
    one = cluster_split(*data, h=0.4, threads=1, **quick)
    other = cluster_split(*data, test_size=0.4, n_jobs=1, **quick)
    np.testing.assert_array_equal(one.val, other.val)
    assert len(cluster_folds(*data, n_splits=3, n_jobs=-1, **quick)) == 3
