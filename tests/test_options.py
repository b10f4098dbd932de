from __future__ import annotations

import re
from dataclasses import fields
from fractions import Fraction
from inspect import signature
from typing import Any

import pytest

from clustersplit import (
    ClusterKFold,
    ClusterShuffleSplit,
    cluster_folds,
    cluster_parts,
    cluster_split,
    compare,
    evaluate,
    inspect,
    mmd,
    permutation_test,
    verify,
    witness,
)
from clustersplit_cli.core.parallel import available_cores
from clustersplit_cli.engines.options import EngineOptions
from clustersplit_cli.engines.plan import memory_budget
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import OPTIONS, OUTPUT, SplitOptions, check_options


def test_the_defaults_are_those_of_the_command() -> None:
    checked = check_options(SplitOptions())
    assert (checked.holdout, checked.tolerance.general, checked.rounding) == (Fraction(1, 5), 0, None)
    assert (checked.kernel, checked.gamma, checked.degree, checked.standardize) == ("rbf", "scale", 3, "none")
    assert (checked.restarts, checked.max_iter, checked.seed) == (10, 100, 0)
    assert (checked.nystrom, checked.solver, checked.certify) == ("auto", "auto", "auto")
    assert (checked.threads, checked.budget) == (available_cores(), memory_budget(None))


def test_numbers_are_read_exactly() -> None:
    checked = check_options(
        SplitOptions(holdout="0.29", tolerance="0.1", gamma="0.5", nystrom="300", memory="2GB", threads=3)
    )
    assert (checked.holdout, checked.tolerance.general) == (Fraction(29, 100), Fraction(1, 10))
    assert (checked.gamma, checked.nystrom, checked.budget, checked.threads) == (0.5, 300, 2 * 10**9, 3)


@pytest.mark.parametrize(("kernel", "linear"), [("rbf", 0), ("linear", 1), ("cosine", 1), ("polynomial", 0)])
def test_linear_kernels_need_no_matrix(kernel: str, linear: bool) -> None:
    assert check_options(SplitOptions(kernel=kernel)).is_linear is bool(linear)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        (
            {"kernel": "gauss"},
            "--kernel 'gauss' is unknown",
            "rbf, laplacian, linear, cosine, polynomial, tanimoto",
        ),
        ({"standardize": "max"}, "--standardize 'max' is unknown", "none, zscore, l2"),
        ({"rounding": "up"}, "--rounding 'up' is unknown", "nearest, balanced"),
        ({"solver": "glpk"}, "--solver 'glpk' is unknown", "auto, cbc"),
        ({"certify": "maybe"}, "--certify 'maybe' is unknown", "auto, always, never"),
        ({"effort": "heroic"}, "--effort 'heroic' is unknown", "fast, normal, thorough"),
        ({"restarts": 0}, "--restarts must be at least 1, got 0", "--restarts 1"),
        ({"max_iter": 0}, "--max-iter must be at least 1, got 0", "--max-iter 1"),
        ({"seed": -1}, "--seed must be at least 0, got -1", "--seed 1"),
        ({"threads": 0}, "--threads must be at least 1, got 0", "--threads 1"),
        ({"holdout": "1"}, "--h must lie strictly between 0 and 1, got 1", "--h 0.2"),
        ({"holdout": "a"}, "--h 'a' is not a number", "--h 0.2"),
        ({"tolerance": "-1"}, "--tolerance must not be negative, got -1", "0 means exact"),
        ({"gamma": "wide"}, "--gamma 'wide' is neither", "--gamma scale"),
        ({"gamma": "-2"}, "--gamma must be a positive finite number, got -2", "--gamma scale"),
        ({"gamma": "nan"}, "--gamma must be a positive finite number, got nan", "--gamma scale"),
        ({"nystrom": "0"}, "--nystrom must be auto, off or a number", "--nystrom 2000"),
        ({"nystrom": "-5"}, "--nystrom must be auto, off or a number", "--nystrom 2000"),
        ({"nystrom": "2.5"}, "--nystrom must be auto, off or a number", "--nystrom 2000"),
        ({"nystrom": "²"}, "--nystrom must be auto, off or a number", "--nystrom 2000"),
        ({"memory": "2"}, "--memory '2' is 2 bytes, less than any run takes", "--memory 2GB"),
        ({"memory": "lots"}, "--memory 'lots' is not a size", "--memory 8GB"),
        ({"degree": 0, "kernel": "polynomial"}, "--degree must be at least 1, got 0", "--degree 1"),
        ({"degree": 2}, "--degree has no meaning for the rbf kernel", "--kernel polynomial"),
        ({"gamma": "1", "kernel": "linear"}, "--gamma has no meaning for the linear kernel", "--kernel rbf"),
        (
            {"nystrom": "10", "kernel": "cosine"},
            "--nystrom 10 has no meaning for the cosine",
            "drop --nystrom",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_value_that_does(
    options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        check_options(SplitOptions(**options))
    assert hint in str(caught.value.hint)
    assert caught.value.exit_code == 2


def test_the_words_of_an_option_are_those_that_are_known() -> None:
    from clustersplit_cli.core.constraints.cells import ROUNDINGS
    from clustersplit_cli.core.effort import EFFORTS
    from clustersplit_cli.core.geometry.kernels import KERNELS, STANDARDIZATIONS
    from clustersplit_cli.data.writers import FORMATS
    from clustersplit_cli.engines.options import ENGINES

    known = {
        "rounding": ROUNDINGS,
        "effort": EFFORTS,
        "kernel": KERNELS,
        "standardize": STANDARDIZATIONS,
        "format": FORMATS,
        "engine": ENGINES,
    }
    for name, words in known.items():
        assert OPTIONS[name].words == tuple(words), name


def test_the_table_and_the_options_of_a_split_have_the_same_defaults() -> None:
    for field in fields(SplitOptions):
        assert OPTIONS[field.name].default == field.default, field.name
    for field in fields(EngineOptions):
        assert OPTIONS[field.name].default == field.default, field.name


PYTHON_NAMES = {
    "holdout": ("h",),
    "seed": ("random_state",),
    "keep_together": ("groups",),
}
OTHERWISE: dict[tuple[Any, str], Any] = {
    # These have two names, of which a caller gives one; the docstring says the default.
    **{
        (each, "h"): None for each in (cluster_split, ClusterShuffleSplit, inspect, compare, evaluate, verify)
    },
    (cluster_folds, "k"): None,
    # A splitter gets the labels of anybody's regression.
    **{(each, "label_bins"): "auto" for each in (ClusterShuffleSplit, ClusterKFold)},
    (evaluate, "effort"): "fast",
}
OF_FILES = {"label", "domain", "label_file", "domain_file", "metadata", "id", "exclude", "parts", "format"}
OF_TARGETS = {"target", "aim", "weights"}
OF_ENGINES = {field.name for field in fields(EngineOptions)}


SEARCHING = {"severity", "at_mmd"} | {
    "kernel",
    "gamma",
    "degree",
    "standardize",
    "nystrom",
    "restarts",
    "effort",
    "max_iter",
    "seed",
}


@pytest.mark.parametrize(
    ("callable_", "not_taken"),
    [
        (cluster_split, {"k"}),
        (inspect, {"k", "severity", "at_mmd", "impute", "distances", *OF_TARGETS}),
        (cluster_folds, {"holdout", "rounding", "force_train", "force_val", "bound", *OF_TARGETS}),
        (cluster_parts, {"holdout", "k", "rounding", "bound", *OF_TARGETS}),
        (
            ClusterShuffleSplit,
            {"k", "force_train", "force_val", "bound", "certify", "keep_together", "weights"},
        ),
        (
            ClusterKFold,
            {"holdout", "k", "rounding", "force_train", "force_val", "bound", "certify", "keep_together"}
            | OF_TARGETS,
        ),
        (verify, {"k", "solver", "certify", "bound", *SEARCHING, *OF_TARGETS, "impute", "distances"}),
        (
            compare,
            {"k", "keep_together", "force_train", "force_val", "label_bins", "solver", "certify", "bound"}
            | {"severity", "at_mmd", "impute", "distances", *OF_TARGETS},
        ),
        (
            evaluate,
            {"k", "keep_together", "force_train", "force_val", "label_bins", "solver", "certify", "bound"}
            | {"severity", "at_mmd", "impute", "distances", *OF_TARGETS}
            | {"stratify", "tolerance", "kernel", "degree"},
        ),
    ],
)
def test_python_takes_the_options_of_the_command_with_their_defaults(
    callable_: Any, not_taken: set[str]
) -> None:
    parameters = signature(callable_).parameters
    for name, option in OPTIONS.items():
        if option.panel == OUTPUT or name in OF_FILES | OF_ENGINES | not_taken:
            continue
        (spelled,) = [word for word in PYTHON_NAMES.get(name, (name,)) if word in parameters]
        default = parameters[spelled].default
        wanted = OTHERWISE.get((callable_, spelled), option.default)
        assert (default if default is None else str(default)) == (
            wanted if wanted is None else str(wanted)
        ), name


ALIASES = {"h": "test_size", "k": "n_splits", "threads": "n_jobs"}


@pytest.mark.parametrize(
    "callable_",
    [
        *(cluster_split, cluster_folds, cluster_parts, ClusterShuffleSplit, ClusterKFold),
        *(inspect, verify, compare, evaluate, mmd, permutation_test, witness),
    ],
)
def test_both_names_of_a_parameter_are_taken_wherever_one_is(callable_: Any) -> None:
    parameters = signature(callable_).parameters
    names = {name for name in ALIASES if name in parameters}
    assert names
    assert all(ALIASES[name] in parameters for name in names)


def test_the_words_that_python_takes_are_those_of_the_table() -> None:
    from typing import get_args

    from clustersplit_cli.python import choices

    for alias, name in {
        "Kernel": "kernel",
        "Standardize": "standardize",
        "Rounding": "rounding",
        "Effort": "effort",
        "Solver": "solver",
        "Certify": "certify",
        "Bound": "bound",
        "Aim": "aim",
        "Impute": "impute",
    }.items():
        assert get_args(getattr(choices, alias)) == OPTIONS[name].words, alias
    taken = set(signature(cluster_split).parameters) - {
        "X",
        "y",
        "domains",
        "groups",
        "stratify",
        "test_size",
    }
    assert set(choices.SplitKeywords.__annotations__) == taken
