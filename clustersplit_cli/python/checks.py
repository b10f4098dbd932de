"""Is a split what its report, or its caller, says it is?"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import UsageError
from clustersplit_cli.python.arguments import SplitInput, in_python_words, prepared, thread_count
from clustersplit_cli.python.display import progress_of
from clustersplit_cli.python.results import Partition, Split
from clustersplit_cli.verification.files import IndexFiles
from clustersplit_cli.verification.recorded import RecordedRun
from clustersplit_cli.verification.verify import verify_run, verify_split

if TYPE_CHECKING:
    from clustersplit_cli.progress import Progress
    from clustersplit_cli.python.choices import Rounding, Tolerance
    from clustersplit_cli.reports.verification import Check, Verification
    from clustersplit_cli.similarity import Nearness

_OF_ROWS = (
    *("y", "domains", "groups", "h", "test_size", "stratify", "tolerance", "rounding", "label_bins"),
    *("force_train", "force_val", "columns", "transformer"),
)


def verify(
    split: Any,
    X: Any = None,
    y: Any = None,
    domains: Any = None,
    *,
    h: float | str | None = None,
    test_size: float | str | None = None,
    groups: Any = None,
    stratify: Any = None,
    tolerance: Tolerance = None,
    rounding: Rounding | None = None,
    label_bins: int | Literal["auto"] | None = None,
    force_train: Any = None,
    force_val: Any = None,
    columns: str | Sequence[str] | None = None,
    transformer: Any = None,
    drop_invalid: bool = False,
    features: str | os.PathLike[str] | None = None,
    rerun: bool = False,
    near_duplicates: float | str | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Verification:
    """Check a split: recompute everything from the rows and the row numbers.

    A result of `cluster_split`, `cluster_folds` or `cluster_parts`, or a directory that was written, is
    checked against its own report. A pair of row numbers by another tool is checked against the rows: it must
    be a split of them, and every cell must have its share.

    Parameters
    ----------
    split : Split, Partition, str, path, or pair of arrays of int
        What to check: a result, a directory, or `(train, val)`.
    X : array, data frame, table or tensor of shape (n, d), optional
        The rows, for a split by another tool.
    y : array of shape (n,) or (n, m), or str, optional
        One label per row, or the name of a column of X. In two dimensions, columns of 0 and 1, each of which
        is a family of cells.
    domains : array of shape (n,) or str, optional
        One domain per row, or the name of a column of X. Without labels and domains, only the size of the
        validation set is kept.
    h : float or str, default 0.2
        Share of validation rows that a split by another tool is to have.
    test_size : float or str, optional
        Another name of `h`, as in scikit-learn.
    groups : array of shape (n,) or str, optional
        Rows of one group stay together: one value per row, the name of a column of X, 'exact-duplicates' for
        rows with the same features, or 'near-duplicates=0.95' for rows of that cosine similarity.
    stratify : str, array of shape (n,), or list of these, optional
        'label', 'domain', 'label,domain', columns of X, or 'none'; several texts make several families of
        cells, each of which keeps its shares. An array is one more family. By default, 'label,domain' as far
        as they are given.
    tolerance : float, str or list, optional
        By what share of it a cell may miss its quota; 'auto' for the smallest that can be met; a list such
        as `[0.05, 'label=dog=0.2']` for cells of their own. By default 0, and 'auto' with groups.
    rounding : {'nearest', 'balanced'}, optional
        'nearest' rounds every cell by itself, 'balanced' makes the total exactly h. By default 'nearest',
        and 'balanced' for several families.
    label_bins : int or 'auto', optional
        Cut labels that are numbers into that many bins of about equal size; 'auto' does so, in up to ten,
        where they are not all whole.
    force_train : array of int or bool, optional
        Rows that must be in training: positions, or a mask.
    force_val : array of int or bool, optional
        Rows that must be in validation.
    columns : str or list of str, optional
        Feature columns of a table, by name or glob; by default all without another role.
    transformer : transformer or function, optional
        Embeds the rows first. A scikit-learn transformer that is not fitted is copied, and the copy fitted.
    drop_invalid : bool, default False
        Leave out rows with NaN or infinite features.
    features : str or path, optional
        For a directory: where the features are now.
    rerun : bool, default False
        Also search again, and compare the split, the trace and all restarts.
    near_duplicates : float or str, optional
        Also fail if a row has a row of this cosine similarity in another part; text such as 'kernel:0.95'
        for a similarity by the kernel.
    memory : int or str, optional
        Memory budget: bytes, or text such as '8GB'. By default 60 % of what the machine has.
    threads : int, optional
        Worker threads, by default one per core. The result does not depend on them.
    n_jobs : int, optional
        Another name of `threads`, as in scikit-learn; -1 for all cores.
    verbose : int, default 0
        1 shows progress on stderr, in notebooks too.

    Returns
    -------
    Verification
        `passed` tells whether nothing failed; `checks` has a line for each, and `summary()` is a text.

    Raises
    ------
    ValueError
        Saying what cannot be used and what would do. A check that fails raises nothing.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.repeat([0, 1, 2], 20)
    >>> X = np.random.default_rng(0).normal(size=(60, 3))
    >>> val = np.arange(0, 60, 5)
    >>> verify((np.setdiff1d(np.arange(60), val), val), X, y).passed
    True
    >>> verify((np.arange(12, 60), np.arange(12)), X, y).failures[0].name
    'cell counts'
    """
    given = dict(locals())
    from clustersplit_cli.cli.options import near_of
    from clustersplit_cli.reports.verification import verification

    with in_python_words(), progress_of(verbose) as progress:
        given["near_duplicates"] = None if near_duplicates is None else str(near_duplicates)
        near = near_of(given)
        is_pair = isinstance(split, (tuple, list)) or (isinstance(split, np.ndarray) and len(split) == 2)
        has_rows = isinstance(split, (Split, Partition)) and split._source is not None
        said = [name for name in ("X", *_OF_ROWS) if given[name] is not None]
        if not is_pair and (said or drop_invalid):
            raise UsageError(
                f"{(said or ['drop_invalid'])[0]} has no effect here: results and directories have rows",
                hint="pass (train, val) for a split by another tool",
            )
        if is_pair or has_rows:
            if features is not None:
                raise UsageError("features is for a directory", hint="leave it out")
            if is_pair:
                if rerun:
                    raise UsageError("rerun is for results of this package", hint="leave it out")
                checks = _of_pair(split, given, near)
            else:
                checks = _of_result(split, progress, near, rerun=rerun)
            subject = "(train, val)" if is_pair else repr(split)
        else:
            directory = split._directory if isinstance(split, (Split, Partition)) else split
            if not isinstance(directory, (str, os.PathLike)):
                raise UsageError(
                    f"a {type(split).__name__} is no result with rows, no directory and no pair",
                    hint="pass the result itself, the directory of a run, or (train, val) and X",
                )
            checks = _of_directory(Path(directory), given, progress)
            subject = str(directory)
        return verification(subject, tuple(checks))


def _of_directory(directory: Path, given: dict[str, Any], progress: Progress) -> Iterator[Check]:
    """The checks of the command line."""
    from clustersplit_cli.cli.commands.verify import checks_of_run

    where = given["features"]
    companions = dict.fromkeys(("label_file", "domain_file", "metadata", "force_train", "force_val"))
    memory = given["memory"]
    asked = {
        **companions,
        "features": None if where is None else Path(where),
        "target": None,
        "near_duplicates": given["near_duplicates"],
        "rerun": given["rerun"],
        "memory": None if memory is None else str(memory),
        "threads": thread_count(given["threads"], given["n_jobs"]),
        "spill": None,
        "quiet": True,
    }
    return checks_of_run(directory, asked, progress)


@dataclass(frozen=True)
class _RunInMemory(RecordedRun):
    """A result in the place of a run directory."""

    parts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def index_files(self) -> IndexFiles:
        """The rows of every part; nothing is read."""
        return IndexFiles(self.parts, (), len(self.parts))


def _of_result(
    result: Split | Partition, progress: Progress, near: Nearness | None, *, rerun: bool
) -> Iterator[Check]:
    """The same checks of what is in memory."""
    from clustersplit_cli.pipeline.local.engine import opened_local

    source: SplitInput = result._source  # type: ignore[assignment]
    recorded = _RunInMemory(Path(), result.report.to_dict(), source.config, parts=dict(result.items()))
    with opened_local(source.dataset, source.options, source.into, progress=progress) as engine:
        yield from verify_run(recorded, engine, rerun=rerun, near=near)


def _of_pair(pair: Sequence[Any], given: dict[str, Any], near: Nearness | None) -> Iterator[Check]:
    """Check a split of which only the row numbers are known."""
    from clustersplit_cli.pipeline.local.engine import opened_local

    if len(pair) != 2:
        raise UsageError(f"a split has two sides, and {len(pair)} were given", hint="pass (train, val)")
    if given["X"] is None:
        raise UsageError("a split by another tool is checked against its rows", hint="pass X, y and domains")
    source = prepared({**given, "certify": "auto"})
    sides = {name: _positions(rows, name) for name, rows in zip(("train", "val"), pair, strict=True)}
    with opened_local(source.dataset, source.options) as engine:
        yield from verify_split(IndexFiles(sides, ()), engine, near=near)


def _positions(rows: Any, name: str) -> NDArray[np.int64]:
    array = np.asarray(rows)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"{name} has {array.ndim} dimensions of {array.dtype}, and should be row positions",
            hint="integers, as in numpy.flatnonzero(mask)",
        )
    return array.astype(np.int64)
