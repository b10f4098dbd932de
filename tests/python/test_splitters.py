"""The scikit-learn splitter in the hands of scikit-learn."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install scikit-learn")

from sklearn.base import clone  # noqa: E402
from sklearn.decomposition import PCA  # noqa: E402
from sklearn.experimental import enable_halving_search_cv  # noqa: E402, F401
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import (  # noqa: E402
    GridSearchCV,
    HalvingGridSearchCV,
    check_cv,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

from clustersplit import (  # noqa: E402
    ClusterKFold,
    ClusterShuffleSplit,
    ClusterSplitWarning,
    cluster_folds,
    cluster_split,
    mmd,
)
from clustersplit_cli.python import splitters as module  # noqa: E402

ROWS = 150


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    domains = rng.integers(0, 2, ROWS)
    labels = rng.integers(0, 2, ROWS)
    return rng.normal(size=(ROWS, 5)) + labels[:, None] + 2 * domains[:, None], labels, domains


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    module.forget()


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the searches that are really made."""
    made: list[int] = []
    search = module.several_splits

    def counted(dataset: Any, options: Any, count: int, progress: Any) -> Any:
        made.append(count)
        return search(dataset, options, count, progress)

    monkeypatch.setattr(module, "several_splits", counted)
    return made


def pipeline() -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression())


GRID = {"logisticregression__C": [0.01, 1.0]}


def test_one_split_is_that_of_cluster_split(data: Any) -> None:
    X, y, domains = data
    expected = cluster_split(X, y, domains, h=0.3, standardize="zscore", random_state=4)
    cv = ClusterShuffleSplit(h=0.3, standardize="zscore", random_state=4)
    ((train, val),) = cv.split(X, y, domains=domains)
    np.testing.assert_array_equal(train, expected.train)
    np.testing.assert_array_equal(val, expected.val)
    assert cv.get_n_splits() == cv.get_n_splits(X, y) == 1
    by_groups = ClusterShuffleSplit(h=0.3, standardize="zscore", random_state=4, groups_are="domains")
    np.testing.assert_array_equal(next(by_groups.split(X, y, domains))[1], val)
    assert not np.array_equal(next(cv.split(X, y))[1], val), "domains must matter for this to be a test"


def test_several_splits_are_different_local_optima_with_the_largest_mmd_first(data: Any) -> None:
    X, y, _ = data
    splits = list(ClusterShuffleSplit(4).split(X, y))
    assert len(splits) == 4
    values = [mmd(X[train], X[val]) for train, val in splits]
    assert values == sorted(values, reverse=True)
    assert values[0] >= cluster_split(X, y).report.mmd.value * (1 - 1e-9)
    random = cluster_split(X, y).report.baselines.random
    assert values[-1] > random.mmd_mean + 3 * random.mmd_sd
    for place, (train, val) in enumerate(splits):
        assert np.array_equal(np.sort(np.concatenate([train, val])), np.arange(ROWS))
        assert np.bincount(y[val]).tolist() == np.bincount(y[splits[0][1]]).tolist()
        for _, other in splits[:place]:
            assert len(np.setdiff1d(val, other)) >= 0.05 * len(val)
        # A local optimum: no exchange of two rows of a class makes it better.
        members = np.isin(np.arange(ROWS), val)
        from scipy.spatial.distance import cdist

        K = np.exp(-cdist(X, X, "sqeuclidean") / X.var(axis=0).sum())
        z = np.where(members, 1 / len(val), -1 / len(train))
        s, c = K @ z, 1 / len(val) + 1 / len(train)
        gain = 2 * c * (s[None, train] - s[val, None]) + c * c * (2 - 2 * K[np.ix_(val, train)])
        gain[y[val][:, None] != y[train][None]] = -1
        assert gain.max() < 1e-7


def test_too_few_optima_are_reported_and_counted() -> None:
    X = (np.arange(20.0) + 90 * (np.arange(20) >= 10))[:, None]  # two halves: one split and its mirror image
    cv = ClusterShuffleSplit(5, h=0.5)
    with pytest.warns(ClusterSplitWarning, match=r"there are 2 good splits .*, not 5: n_splits=2 would do"):
        splits = list(cv.split(X))
    assert len(splits) == cv.get_n_splits(X) == 2
    assert cv.get_n_splits() == 5
    assert {tuple(val.tolist()) for _, val in splits} == {tuple(range(10)), tuple(range(10, 20))}


def test_a_grid_search_works_with_fewer_optima_than_asked_for(searches: list[int]) -> None:
    X = np.concatenate([np.random.default_rng(0).normal(size=(40, 1)) * 0.01 + 9 * (k % 2) for k in range(2)])
    y = np.tile([0, 1], 40)
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=ClusterShuffleSplit(30, h=0.5))
    with pytest.warns(ClusterSplitWarning, match="good split"):
        search.fit(X, y)
    assert search.n_splits_ < 30
    assert searches == [30]


def test_check_cv_clone_copy_pickle_and_repr_keep_it_as_it_is(data: Any) -> None:
    X, y, _ = data
    cv = ClusterShuffleSplit(2, h=0.3, standardize="zscore", transformer=PCA(2))
    assert check_cv(cv, y, classifier=True) is cv
    text = "ClusterShuffleSplit(n_splits=2, h=0.3, standardize='zscore', transformer=PCA(n_components=2))"
    assert repr(cv) == text
    assert repr(ClusterShuffleSplit()) == "ClusterShuffleSplit()"
    expected = [val.tolist() for _, val in cv.split(X, y)]
    for other in (
        copy.deepcopy(cv),
        clone(cv, safe=False),
        pickle.loads(pickle.dumps(cv)),
        clone(GridSearchCV(pipeline(), GRID, cv=cv)).cv,
    ):
        assert other is not cv
        assert repr(other) == text
        assert [val.tolist() for _, val in other.split(X, y)] == expected


def test_indices_that_a_caller_changes_do_not_change_later_ones(data: Any) -> None:
    X, y, _ = data
    cv = ClusterShuffleSplit()
    ((_, val),) = cv.split(X, y)
    kept = val.copy()
    val[:] = 0
    np.testing.assert_array_equal(next(cv.split(X, y))[1], kept)


def test_the_same_search_is_made_once(data: Any, searches: list[int]) -> None:
    X, y, domains = data
    cv = ClusterShuffleSplit()
    for model in (LogisticRegression(), pipeline()):
        cross_val_score(model, X, y, cv=cv)
    assert searches == [1]
    for change in ({"h": 0.3}, {"random_state": 1}, {"n_splits": 2}):
        list(ClusterShuffleSplit(**change).split(X, y))
    list(cv.split(X, y, domains=domains))
    list(cv.split(X.astype(np.float32), y))
    list(cv.split(X + 1e-9, y))
    list(cv.split(X, 1 - y % 2))
    assert len(searches) == 8


def test_a_grid_search_over_a_pipeline_takes_domains_as_groups(data: Any) -> None:
    X, y, domains = data
    cv = ClusterShuffleSplit(groups_are="domains")
    search = GridSearchCV(pipeline(), GRID, cv=cv).fit(X, y, groups=domains)
    found = cluster_split(X, y, domains)
    model = clone(search.best_estimator_).fit(X[found.train], y[found.train])
    assert search.best_score_ == pytest.approx(model.score(X[found.val], y[found.val]))


def test_metadata_routing_carries_domains_under_their_own_name(data: Any, routing: None) -> None:
    X, y, domains = data
    search = GridSearchCV(pipeline(), GRID, cv=ClusterShuffleSplit()).fit(X, y, domains=domains)
    found = cluster_split(X, y, domains)
    model = clone(search.best_estimator_).fit(X[found.train], y[found.train])
    assert search.best_score_ == pytest.approx(model.score(X[found.val], y[found.val]))
    scores = cross_val_score(pipeline(), X, y, cv=ClusterShuffleSplit(), params={"domains": domains})
    assert scores.shape == (1,)
    renamed = ClusterShuffleSplit().set_split_request(domains="place")
    again = cross_val_score(pipeline(), X, y, cv=renamed, params={"place": domains})
    np.testing.assert_array_equal(scores, again)


def test_halving_searches_and_nested_cross_validation_work(data: Any) -> None:
    X, y, domains = data
    cv = ClusterShuffleSplit(2, groups_are="domains")
    halving = HalvingGridSearchCV(pipeline(), GRID, cv=cv, min_resources=40, random_state=0)
    halving.fit(X, y, groups=domains)
    assert halving.n_splits_ == 2
    inner = GridSearchCV(pipeline(), GRID, cv=ClusterShuffleSplit())
    result = cross_validate(inner, X, y, cv=ClusterShuffleSplit(2), return_estimator=True)
    assert len(result["test_score"]) == 2
    assert all(np.isfinite(found.best_score_) for found in result["estimator"])


def test_frames_and_embedded_texts_go_through_a_search(data: Any) -> None:
    X, y, _ = data
    expected = cross_val_score(pipeline(), X, y, cv=ClusterShuffleSplit())
    for name in ("pandas", "polars"):
        frames = pytest.importorskip(name, reason=f"{name} is not installed")
        frame = frames.DataFrame({f"f{column}": X[:, column] for column in range(5)})
        scores = cross_val_score(pipeline(), frame, y, cv=ClusterShuffleSplit())
        np.testing.assert_allclose(scores, expected)
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [
        f"{'good' if label else 'bad'} {'film' if row % 3 else 'book'} {row}" for row, label in enumerate(y)
    ]
    cv = ClusterShuffleSplit(kernel="linear", transformer=TfidfVectorizer())
    model = make_pipeline(TfidfVectorizer(), LogisticRegression())
    assert cross_val_score(model, texts, y, cv=cv).shape == (1,)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"n_splits": 0}, {}, "n_splits must be at least 1, got 0"),
        ({"n_splits": 2.0}, {}, "n_splits must be an integer"),
        ({"groups_are": "sites"}, {}, "groups_are 'sites' is unknown"),
        ({"groups_are": "domains"}, {"groups": "d", "domains": "d"}, "domains were given twice"),
        ({"groups_are": "domains"}, {"groups": [1, 2]}, "there are 2 domains for 150 rows"),
        ({"h": 2}, {}, "h must lie strictly between"),
    ],
)
def test_wrong_parameters_are_value_errors_when_rows_are_split(
    options: dict[str, Any], arguments: dict[str, Any], message: str, data: Any
) -> None:
    X, y, domains = data
    arguments = {name: domains if value == "d" else value for name, value in arguments.items()}
    cv = ClusterShuffleSplit(**options)
    with pytest.raises(ValueError, match=message):
        next(cv.split(X, y, **arguments))


def test_other_random_states_are_drawn_from_a_generator(data: Any, searches: list[int]) -> None:
    X, y, _ = data
    cv = ClusterShuffleSplit(random_state=np.random.RandomState(0), effort="fast", restarts=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClusterSplitWarning)
        list(cv.split(X, y))
        list(cv.split(X, y))
    assert len(searches) == 2


@pytest.fixture(scope="module")
def groups() -> Any:
    return np.random.default_rng(5).integers(0, 50, ROWS)


def test_folds_of_the_splitter_are_those_of_cluster_folds(data: Any) -> None:
    X, y, domains = data
    cv = ClusterKFold(3, standardize="zscore", random_state=2)
    found = list(cv.split(X, y, domains=domains))
    expected = list(cluster_folds(X, y, domains, k=3, standardize="zscore", random_state=2).folds())
    assert len(found) == cv.get_n_splits() == 3
    for (train, val), (rest, fold) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(train, rest)
        np.testing.assert_array_equal(val, fold)
    by_groups = ClusterKFold(3, standardize="zscore", random_state=2, groups_are="domains")
    np.testing.assert_array_equal(next(by_groups.split(X, y, domains))[1], found[0][1])
    counts = [np.bincount(2 * y[val] + domains[val], minlength=4) for _, val in found]
    assert np.ptp(counts, axis=0).max() <= 1


# The rows are noise, in which parts of whole groups, equal in size, hardly differ more than random ones.
HARDLY_APART = pytest.mark.filterwarnings("ignore:MMD .* is not above that of random parts")


@HARDLY_APART
@pytest.mark.parametrize(
    "cv",
    [ClusterShuffleSplit(2, h=0.3, restarts=2, effort="fast"), ClusterKFold(2, restarts=4)],
    ids=["shuffle", "folds"],
)
def test_groups_stay_together_as_they_do_in_scikit_learn(cv: Any, data: Any, groups: Any) -> None:
    X, y, domains = data
    splits = list(cv.split(X, y, groups))
    assert len(splits) == 2
    for train, val in splits:
        assert not np.intersect1d(groups[train], groups[val]).size
        assert sorted([*train, *val]) == list(range(ROWS))
    named = type(cv)(2, restarts=2, effort="fast", stratify="domain")
    train, val = next(named.split(X, y, groups, domains))
    assert not np.intersect1d(groups[train], groups[val]).size


@HARDLY_APART
def test_a_grid_search_keeps_groups_together_with_routing_off_and_on(data: Any, groups: Any) -> None:
    X, y, domains = data
    cv = ClusterKFold(3, restarts=4)
    off = GridSearchCV(pipeline(), GRID, cv=cv).fit(X, y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        on = GridSearchCV(pipeline(), GRID, cv=cv).fit(X, y, groups=groups)
        both = cross_validate(
            pipeline(), X, y, cv=cv, params={"groups": groups, "domains": domains}, return_indices=True
        )
    np.testing.assert_allclose(off.cv_results_["mean_test_score"], on.cv_results_["mean_test_score"])
    for train, val in zip(both["indices"]["train"], both["indices"]["test"], strict=True):
        assert not np.intersect1d(groups[train], groups[val]).size


def test_folds_go_through_all_of_scikit_learns_searches(data: Any) -> None:
    X, y, _ = data
    cv = ClusterKFold(3, standardize="zscore", transformer=PCA(2), restarts=4)
    assert check_cv(cv, y, classifier=True) is cv
    text = "ClusterKFold(n_splits=3, standardize='zscore', restarts=4, transformer=PCA(n_components=2))"
    expected = [val.tolist() for _, val in cv.split(X, y)]
    for other in (
        cv,
        clone(cv, safe=False),
        pickle.loads(pickle.dumps(cv)),
        clone(GridSearchCV(pipeline(), GRID, cv=cv)).cv,
    ):
        assert repr(other) == text
        assert [val.tolist() for _, val in other.split(X, y)] == expected
    assert cross_val_score(pipeline(), X, y, cv=cv).shape == (3,)
    halving = HalvingGridSearchCV(pipeline(), GRID, cv=cv, min_resources=60, random_state=0).fit(X, y)
    assert halving.n_splits_ == 3
    inner = GridSearchCV(pipeline(), GRID, cv=ClusterKFold(2, restarts=2))
    nested = cross_validate(inner, X, y, cv=ClusterKFold(2, restarts=2))
    assert np.isfinite(nested["test_score"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_splits": 1}, "number of folds must be an integer of at least 2, got 1"),
        ({"groups_are": None}, "groups_are None is unknown"),
        ({"tolerance": 0.1}, "tolerance has no effect on folds of single rows"),
        ({"stratify": ["label", "none"]}, "2 families of cells cannot be kept by folds"),
    ],
)
def test_wrong_parameters_of_folds_are_value_errors(options: dict[str, Any], message: str, data: Any) -> None:
    X, y, _ = data
    with pytest.raises(ValueError, match=message):
        next(ClusterKFold(**options).split(X, y))


def held_in(library: str, X: Any) -> Any:
    """The same rows in what users hold them in."""
    columns = {f"f{column}": X[:, column] for column in range(X.shape[1])}
    if library == "scipy.sparse":
        from scipy.sparse import csr_array

        return csr_array(X)
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "torch":
        return module.tensor(X)
    return module.table(columns) if library == "pyarrow" else module.DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow", "scipy.sparse", "torch"])
@pytest.mark.parametrize("kind", [ClusterShuffleSplit, ClusterKFold])
def test_rows_in_any_container_give_the_same_splits_and_scores(kind: Any, library: str, data: Any) -> None:
    X, y, _ = data
    cv = kind(2, kernel="linear", restarts=2)
    rows = held_in(library, X)
    for (_, val), (_, expected) in zip(cv.split(rows, y), cv.split(X, y), strict=True):
        np.testing.assert_array_equal(val, expected)
    model = LogisticRegression(max_iter=1000)
    scores = cross_val_score(model, rows, y, cv=cv)
    np.testing.assert_allclose(scores, cross_val_score(model, X, y, cv=cv))
