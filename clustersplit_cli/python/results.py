"""What Python callers get: a split or a partition, its report, and ways to keep and to show them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import ClusterSplitError, InputError, UsageError
from clustersplit_cli.python.arguments import SplitInput, in_python_words
from clustersplit_cli.reports.summary import Report

if TYPE_CHECKING:
    from clustersplit_cli.reports.portrait import Portrait

Indices = NDArray[np.int64]
MOST_ROWS_DRAWN = 10_000
"""A notebook draws the map of so many rows by itself: it takes the kernel once more."""


@dataclass(frozen=True, repr=False, eq=False)
class _Result:
    """What splits and partitions have in common: a report, and the rows that it is about.

    The rows are those that the caller passed, so they take no memory of their own where they were an array.
    A pickled result comes back without them.
    """

    report: Report
    _source: SplitInput | None = field(default=None, kw_only=True)
    _directory: Path | None = field(default=None, kw_only=True)

    @property
    def _parts(self) -> Mapping[str, Indices]:
        """The rows of every part, by name."""
        raise NotImplementedError

    @property
    def _labels(self) -> Indices:
        """The number of every row's part; -1 for a row that is in none."""
        raise NotImplementedError

    def save(
        self,
        directory: str | os.PathLike[str],
        *,
        features: str | os.PathLike[str] | None = None,
        label: str | None = None,
        domain: str | None = None,
        label_file: str | os.PathLike[str] | None = None,
        domain_file: str | os.PathLike[str] | None = None,
        metadata: str | os.PathLike[str] | None = None,
        force: bool = False,
    ) -> Path:
        """Write a run directory that the commands `verify`, `report` and `mmd` take.

        Without `features` the rows are written beside the row numbers, so that the directory holds all that
        its report rests on. With it, the file is read and must hold the same rows.

        Parameters
        ----------
        directory : str or path
            The directory to make. It appears whole or not at all.
        features : str or path, optional
            The file that X was read from, as the command line takes it.
        label, domain : str, optional
            The columns of `features` or `metadata` that hold `y` and `domains`.
        label_file, domain_file : str or path, optional
            Files that hold `y` and `domains`, aligned by row.
        metadata : str or path, optional
            A table of such columns, aligned by row.
        force : bool, default False
            Replace an earlier run.

        Returns
        -------
        pathlib.Path
            The directory.

        Raises
        ------
        ValueError
            If the file holds other rows, or there are none: after `load`, or from a pickle.
        """
        from clustersplit_cli.python.saving import save

        with in_python_words():
            if self._source is None:
                raise UsageError(
                    "this result has no rows to write: it was loaded or unpickled",
                    hint="copy the directory it came from, or make it again",
                )
            files = {
                "label_file": label_file,
                "domain_file": domain_file,
                "metadata": metadata,
            }
            given = {name: None if path is None else Path(path) for name, path in files.items()}
            names = {"label": label, "domain": domain}
            where = None if features is None else Path(features)
            save(
                self._source,
                self._parts,
                self._labels,
                self.report,
                Path(directory),
                where,
                {**given, **names},
                force=force,
            )
        return Path(directory)

    def to_html(
        self,
        path: str | os.PathLike[str],
        X: Any = None,
        y: Any = None,
        domains: Any = None,
        *,
        groups: Any = None,
        force: bool = False,
    ) -> Path:
        """Write the report as one HTML page that works offline; it takes jinja2 and plotly.

        Parameters
        ----------
        path : str or path
            The file to write.
        X : array or table of shape (n, d), optional
            The rows. Only a result that was loaded or unpickled needs them, and a loaded one finds them by
            itself where the files that its report names are still there.
        y, domains, groups : array of shape (n,) or str, optional
            What was passed with them.
        force : bool, default False
            Replace the file if there is one.

        Returns
        -------
        pathlib.Path
            The file.

        Raises
        ------
        ValueError
            If the rows are others than those of the report.
        """
        from clustersplit_cli.python.drawing import page, portrait_of, rows_of
        from clustersplit_cli.reports.html_page import check_available

        with in_python_words():
            from clustersplit_cli.data.publish import staged_file

            check_available()
            source = self._source
            if X is not None or source is None:
                source = rows_of(self.report, self._directory, X, y, domains, groups)
            drawn = portrait_of(source, self._labels, self.report)
            text = page(self.report, drawn, source, self._directory)
            with staged_file(Path(path), force=force) as file:
                file.write_bytes(text.encode("utf-8", "backslashreplace"))
        return Path(path)

    def _repr_html_(self) -> str:
        """What notebooks show: a compact table, and a map of the rows while there are not many."""
        from clustersplit_cli.python.drawing import portrait_of
        from clustersplit_cli.reports.html import render_result

        drawn: Portrait | None = None
        source = self._source
        is_sparse = source is not None and hasattr(source.dataset.features, "indptr")
        if source is not None and not is_sparse and len(source.dataset.rows) <= MOST_ROWS_DRAWN:
            with suppress(ClusterSplitError):  # the rows were changed since
                drawn = portrait_of(source, self._labels, self.report)
        return render_result(self.report, repr(self), drawn)


@dataclass(frozen=True, repr=False, eq=False)
class Split(_Result):
    """A train/validation split; `train, val = split` takes it apart.

    Attributes
    ----------
    train : array of shape (n_train,)
        Row positions of training, ascending, 0-based: `X[split.train]`, or `X.iloc[split.train]` with pandas.
    val : array of shape (n_val,)
        Those of validation.
    report : Report
        Everything that `report.json` says, as attributes: `split.report.mmd.value`. `report.summary()` is a
        text to read, `report.to_dict()` and `report.to_json()` are for programs.
    weights : array of shape (n_val,), optional
        Of the validation rows, in their order, with `weights=True`.
    """

    train: Indices = field(kw_only=True)
    val: Indices = field(kw_only=True)
    weights: NDArray[np.float64] | None = field(default=None, kw_only=True)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Split:
        """Read the directory of a `clustersplit split`, or of `save`, back.

        Parameters
        ----------
        directory : str or path
            The run directory.

        Returns
        -------
        Split
            It has no rows, only their numbers.

        Raises
        ------
        ValueError
            If it is no run directory, or damaged; or holds folds or named parts, for `Partition.load`.
        """
        from clustersplit_cli.data.runs import load_run
        from clustersplit_cli.reports.json_report import restore_report
        from clustersplit_cli.verification.recorded import report_of

        with in_python_words():
            run = load_run(Path(directory), report_of(Path(directory)))
        rows: dict[str, Any] = {"train": run.train, "val": run.val, "weights": run.weights}
        return cls(restore_report(run.report), _directory=Path(directory), **rows)

    def items(self) -> Iterator[tuple[str, Indices]]:
        """Yield the names `train` and `val` with their rows.

        Yields
        ------
        str, array
            A name and row positions.
        """
        return iter(self._parts.items())

    def to_predefined_split(self) -> Any:
        """Return a `sklearn.model_selection.PredefinedSplit` with this split as its only fold.

        Returns
        -------
        sklearn.model_selection.PredefinedSplit
            For `cv=` of anything in scikit-learn.

        Raises
        ------
        ValueError
            If some rows are on neither side, which scikit-learn would put into training.
        """
        from sklearn.model_selection import PredefinedSplit

        labels = self._labels
        left_out = int((labels < 0).sum())
        with in_python_words():
            if left_out:
                raise InputError(
                    f"{left_out} of {len(labels)} rows are on neither side, which a PredefinedSplit cannot "
                    "express",
                    hint="use cv=[(split.train, split.val)]",
                )
        return PredefinedSplit(labels - 1)

    @property
    def _parts(self) -> Mapping[str, Indices]:
        return {"train": self.train, "val": self.val}

    @property
    def _labels(self) -> Indices:
        labels = np.full(self.report.input.n_rows, -1, dtype=np.int64)
        labels[self.train], labels[self.val] = 0, 1
        return labels

    def __iter__(self) -> Iterator[Indices]:
        return iter((self.train, self.val))

    def __len__(self) -> int:
        return 2

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (
            Split,
            self.report,
            {"train": self.train, "val": self.val, "weights": self.weights},
        )

    def __repr__(self) -> str:
        return f"Split({len(self.train):,} train, {len(self.val):,} val, MMD {self.report.mmd.value:.4g})"


@dataclass(frozen=True, repr=False, eq=False)
class Partition(_Result):
    """Folds, or parts with names.

    Iterating over folds yields `(train, val)` for every fold, over named parts the rows of each, so that
    `train, val, test = cluster_parts(...)` takes them apart.

    Attributes
    ----------
    parts : dict of str to array
        Row positions of every part, ascending, 0-based, by its name (`fold_0`, `fold_1`, ... of folds).
    labels : array of shape (n,)
        The number of every row's part; -1 for a row that is in none.
    report : Report
        Everything that `report.json` says, as attributes: `partition.report.parts.mmd`.
    """

    parts: Mapping[str, Indices] = field(kw_only=True)
    labels: Indices = field(kw_only=True)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Partition:
        """Read the directory of a `clustersplit kfold`, of `clustersplit split --parts`, or of `save` back.

        Parameters
        ----------
        directory : str or path
            The run directory.

        Returns
        -------
        Partition
            It has no rows, only their numbers.

        Raises
        ------
        ValueError
            If it is no run directory, or damaged; or holds a split in two, for `Split.load`.
        """
        from clustersplit_cli.data.runs import load_parts
        from clustersplit_cli.reports.json_report import restore_report
        from clustersplit_cli.verification.recorded import report_of

        with in_python_words():
            run = load_parts(Path(directory), report_of(Path(directory)))
        report = restore_report(run.report)
        return cls(report, parts=run.parts, labels=run.labels, _directory=Path(directory))

    def items(self) -> Iterator[tuple[str, Indices]]:
        """Yield every part's name and rows.

        Yields
        ------
        str, array
            A name and row positions.
        """
        return iter(self.parts.items())

    def folds(self) -> Iterator[tuple[Indices, Indices]]:
        """Yield (all other rows, the rows of a part) for every part: train and validate on each in turn.

        Yields
        ------
        array, array
            Row positions of training and validation.
        """
        for part, rows in enumerate(self.parts.values()):
            yield np.flatnonzero((self.labels >= 0) & (self.labels != part)), rows

    def to_predefined_split(self) -> Any:
        """Return a `sklearn.model_selection.PredefinedSplit` with these parts as its folds.

        Returns
        -------
        sklearn.model_selection.PredefinedSplit
            For `cv=` of anything in scikit-learn.

        Raises
        ------
        ValueError
            If some rows are in no part, which scikit-learn would put into training.
        """
        from sklearn.model_selection import PredefinedSplit

        left_out = int((self.labels < 0).sum())
        with in_python_words():
            if left_out:
                raise UsageError(
                    f"{left_out} rows are in no part, which a PredefinedSplit cannot express",
                    hint="use cv=list(partition.folds())",
                )
        return PredefinedSplit(self.labels)

    @property
    def _parts(self) -> Mapping[str, Indices]:
        return self.parts

    @property
    def _labels(self) -> Indices:
        return self.labels

    def __getitem__(self, name: str) -> Indices:
        return self.parts[name]

    def __iter__(self) -> Iterator[Any]:
        are_folds = self.report.config.get("k") is not None
        return self.folds() if are_folds else iter(self.parts.values())

    def __len__(self) -> int:
        return len(self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (Partition, self.report, {"parts": dict(self.parts), "labels": self.labels})

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(rows):,}" for name, rows in self.parts.items())
        return f"Partition({sizes}; mean MMD {self.report.mmd.value:.4g})"


def _unpickled(kind: Any, report: Report, rows: Mapping[str, Any]) -> Any:
    return kind(report, **rows)
