"""Two samples of rows: how far apart they are, whether by chance, and which rows tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.python.arguments import embedded, in_python_words, options_of, warn_of
from clustersplit_cli.python.display import progress_of
from clustersplit_cli.similarity import PRECOMPUTED

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.options import CheckedOptions
    from clustersplit_cli.pipeline.mmd.run import Answer
    from clustersplit_cli.python.choices import Estimator, FeatureKernel, Standardize
    from clustersplit_cli.reports.mmd.summary import MMDReport


@dataclass(frozen=True)
class PermutationTest:
    """Whether two samples could be of one distribution.

    Attributes
    ----------
    mmd : float
        Their MMD (biased estimator).
    p_value : float
        The share of random regroupings of the rows, this one included, that are at least as far apart.
    random_mean : float
        The mean MMD of the random regroupings.
    permutations : int
        How many there were.
    report : MMDReport
        Everything that `clustersplit mmd --json` says.
    """

    mmd: float
    p_value: float
    random_mean: float
    permutations: int
    report: MMDReport

    def __repr__(self) -> str:
        return (
            f"PermutationTest(MMD {self.mmd:.4g}, p {self.p_value:.3g}, random mean {self.random_mean:.4g}, "
            f"{self.permutations:,} permutations)"
        )


def mmd(
    X: Any,
    Y: Any,
    *,
    kernel: FeatureKernel = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: Standardize = "none",
    estimator: Estimator = "biased",
    squared: bool = False,
    random_state: Any = 0,
    threads: int | None = None,
    n_jobs: int | None = None,
    transformer: Any = None,
) -> float:
    """Maximum mean discrepancy between two samples of rows, under the exact kernel.

    Kernel width and standardization are those of both samples together, so for a split it is the value in the
    report: `mmd(X[split.train], X[split.val]) == split.report.mmd.value`, but for rounding.

    Parameters
    ----------
    X : array or table of shape (n, d)
        The first sample, as for `cluster_split`, but dense.
    Y : array or table of shape (m, d)
        The second one.
    kernel : {'rbf', 'laplacian', 'linear', 'cosine', 'polynomial', 'tanimoto'}, default 'rbf'
        How rows are compared.
    gamma : float or str, optional
        Kernel width: a number, 'scale' (1 / total variance; laplacian: 1 / total
        deviation), '1/d' or 'median'. By default 'scale'.
    degree : int, optional
        Degree of the polynomial kernel. By default 3.
    standardize : {'none', 'zscore', 'l2'}, default 'none'
        Scale columns to unit variance, or rows to unit length, first.
    estimator : {'biased', 'unbiased'}, default 'biased'
        'biased' is the paper's; the square of 'unbiased' may be negative and must be asked for as such.
    squared : bool, default False
        Return MMD².
    random_state : int, NumPy generator or None, default 0
        The seed. The same seed gives the same result; a generator or None gives another one each time.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, optional
        Another name of `threads`, as in scikit-learn; -1 for all cores.
    transformer : transformer or function, optional
        Embeds both samples; it must be fitted, or a function.

    Returns
    -------
    float
        The MMD, or its square.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(200, 2))
    >>> mmd(rows[:100], rows[100:]) < mmd(rows[:100], rows[100:] + 1)
    True
    """
    given = dict(locals())
    from clustersplit_cli.core.mmd.estimators import ESTIMATORS, squared_discrepancies
    from clustersplit_cli.core.mmd.sums import exact_sums
    from clustersplit_cli.core.parallel import pool
    from clustersplit_cli.pipeline.context import Streams, prepare_features

    with in_python_words():
        if estimator not in ESTIMATORS:
            raise UsageError(
                f"estimator {estimator!r} is unknown", hint=f"choose one of {', '.join(ESTIMATORS)}"
            )
        if estimator == "unbiased" and not squared:
            raise UsageError("the unbiased estimate of MMD² may be negative", hint="pass squared=True")
        options = _options(given)
        samples = _samples(X, Y, transformer)
        rows = np.concatenate(samples)
        groups = [np.arange(len(samples[0])), np.arange(len(samples[0]), len(rows))]
        with pool(options.threads) as workers:
            prepared = prepare_features(rows, options, workers, Streams.from_seed(options.seed).samples)
            sums = exact_sums(prepared.features, prepared.kernel, groups, workers)
        value = float(squared_discrepancies(sums, estimator)[0, 1])
    return value if squared else float(max(value, 0.0) ** 0.5)


def permutation_test(
    X: Any,
    Y: Any,
    *,
    permutations: int = 1000,
    kernel: FeatureKernel = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: Standardize = "none",
    nystrom: int | str = "auto",
    random_state: Any = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    transformer: Any = None,
    verbose: int = 0,
) -> PermutationTest:
    """Test whether two samples of rows could be of one distribution, by regrouping their rows at random.

    Of the sides of a split that was chosen for being far apart, the p-value describes, and tests nothing.

    Parameters
    ----------
    X : array or table of shape (n, d)
        The first sample, as for `cluster_split`, but dense.
    Y : array or table of shape (m, d)
        The second one.
    permutations : int, default 1000
        Random regroupings. The smallest p-value is 1 / (permutations + 1).
    kernel : {'rbf', 'laplacian', 'linear', 'cosine', 'polynomial', 'tanimoto'}, default 'rbf'
        How rows are compared.
    gamma : float or str, optional
        Kernel width: a number, 'scale' (1 / total variance; laplacian: 1 / total
        deviation), '1/d' or 'median'. By default 'scale'.
    degree : int, optional
        Degree of the polynomial kernel. By default 3.
    standardize : {'none', 'zscore', 'l2'}, default 'none'
        Scale columns to unit variance, or rows to unit length, first.
    nystrom : int or str, default 'auto'
        Number of landmark rows that approximate the kernel; 'off' for the exact one; 'auto' takes 2000 if
        the exact one does not fit memory.
    random_state : int, NumPy generator or None, default 0
        The seed. The same seed gives the same result; a generator or None gives another one each time.
    memory : int or str, optional
        Memory budget: bytes, or text such as '8GB'. By default 60 % of what the machine has.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, optional
        Another name of `threads`, as in scikit-learn; -1 for all cores.
    transformer : transformer or function, optional
        Embeds both samples; it must be fitted, or a function.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    PermutationTest
        The MMD and its p-value.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(60, 2))
    >>> permutation_test(rows[:30], rows[30:] + 1, permutations=99).p_value
    0.01
    """
    given = dict(locals())
    with in_python_words(), progress_of(verbose) as progress:
        if isinstance(permutations, bool) or not isinstance(permutations, (int, np.integer)):
            raise UsageError(f"permutations must be an integer, got {permutations!r}", hint="try 1000")
        if permutations < 1:
            raise UsageError(f"permutations must be at least 1, got {permutations}", hint="try 1000")
        answer = _compared(X, Y, given, int(permutations), progress)
    (pair,) = answer.report.pairs
    assert pair.value is not None and pair.p_value is not None and pair.random_mean is not None
    warn_of(answer.report.warnings, stacklevel=2)
    return PermutationTest(pair.value, pair.p_value, pair.random_mean, int(permutations), answer.report)


def witness(
    X: Any,
    Y: Any,
    *,
    kernel: FeatureKernel = "rbf",
    gamma: float | str | None = None,
    degree: int | None = None,
    standardize: Standardize = "none",
    nystrom: int | str = "auto",
    random_state: Any = 0,
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    transformer: Any = None,
    verbose: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The witness of the MMD at every row: large where a row looks like the second sample.

    It is the mean kernel value with the rows of `Y` minus that with the rows of `X`; MMD² is its mean over
    `Y` minus its mean over `X`.

    Parameters
    ----------
    X : array or table of shape (n, d)
        The first sample, as for `cluster_split`, but dense.
    Y : array or table of shape (m, d)
        The second one.
    kernel : {'rbf', 'laplacian', 'linear', 'cosine', 'polynomial', 'tanimoto'}, default 'rbf'
        How rows are compared.
    gamma : float or str, optional
        Kernel width: a number, 'scale' (1 / total variance; laplacian: 1 / total
        deviation), '1/d' or 'median'. By default 'scale'.
    degree : int, optional
        Degree of the polynomial kernel. By default 3.
    standardize : {'none', 'zscore', 'l2'}, default 'none'
        Scale columns to unit variance, or rows to unit length, first.
    nystrom : int or str, default 'auto'
        Number of landmark rows that approximate the kernel; 'off' for the exact one; 'auto' takes 2000 if
        the exact one does not fit memory.
    random_state : int, NumPy generator or None, default 0
        The seed. The same seed gives the same result; a generator or None gives another one each time.
    memory : int or str, optional
        Memory budget: bytes, or text such as '8GB'. By default 60 % of what the machine has.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, optional
        Another name of `threads`, as in scikit-learn; -1 for all cores.
    transformer : transformer or function, optional
        Embeds both samples; it must be fitted, or a function.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    of_X : array of shape (n,)
        The witness at the rows of the first sample.
    of_Y : array of shape (m,)
        The witness at the rows of the second one.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(60, 2))
    >>> of_X, of_Y = witness(rows[:30], rows[30:] + 1)
    >>> bool(of_Y.mean() > of_X.mean())
    True
    """
    given = dict(locals())
    with in_python_words(), progress_of(verbose) as progress:
        answer = _compared(X, Y, given, 0, progress)
    assert answer.witness is not None
    n = answer.report.groups[0].size
    return answer.witness[:n], answer.witness[n:]


def _samples(X: Any, Y: Any, transformer: Any) -> list[NDArray[np.floating[Any]]]:
    """Check both samples."""
    samples = [_dense_rows(rows, name, transformer) for rows, name in ((X, "X"), (Y, "Y"))]
    if samples[0].shape[1] != samples[1].shape[1]:
        raise InputError(
            f"X has {samples[0].shape[1]} features and Y has {samples[1].shape[1]}",
            hint="pass samples of the same features",
        )
    return samples


def _dense_rows(rows: Any, name: str, transformer: Any) -> NDArray[np.floating[Any]]:
    """Check one sample."""
    from clustersplit_cli.data.foreign import as_rows
    from clustersplit_cli.data.in_memory import feature_matrix
    from clustersplit_cli.data.sparse import is_sparse

    matrix: Any = feature_matrix(as_rows(embedded(rows, None, transformer)))
    if is_sparse(matrix):
        raise InputError(f"{name} is sparse", hint=f"pass {name}.toarray()")
    if len(matrix) == 0 or not np.isfinite(matrix).all():
        raise InputError(f"{name} has no rows, or NaN or infinite features", hint="leave such rows out")
    return np.asarray(matrix)


def _compared(X: Any, Y: Any, given: dict[str, Any], permutations: int, progress: Any) -> Answer:
    """Compare the samples as the command line compares two files."""
    from clustersplit_cli.pipeline.mmd.groups import Question, compare_files
    from clustersplit_cli.pipeline.mmd.run import compare

    options: CheckedOptions = _options(given)
    samples = zip(_samples(X, Y, given["transformer"]), ("X", "Y"), strict=True)
    datasets = [_dataset(rows, name) for rows, name in samples]
    comparison = compare_files(datasets, ["X", "Y"], ())
    return compare(comparison, options, Question(permutations=permutations), progress=progress)


def _dataset(rows: NDArray[np.floating[Any]], name: str) -> Dataset:
    from clustersplit_cli.data.dataset import Dataset, InputFile

    file = InputFile(name, "features", int(rows.nbytes), None)
    names = tuple(map(str, range(rows.shape[1])))
    everything = np.arange(len(rows))
    return Dataset(rows, names, names, {}, everything, n_rows=len(rows), read_from=lambda: (file,))


def _options(given: Mapping[str, Any]) -> CheckedOptions:
    """Check the options; values of pairs of rows are not what samples are."""
    if given["kernel"] == PRECOMPUTED:
        raise UsageError(
            f"--kernel {PRECOMPUTED} compares rows of one matrix, and these are two samples",
            hint="split the rows with cluster_split, or pass features",
        )
    return options_of(given)
