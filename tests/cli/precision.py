"""Splits of rows of any size, offset and type, and what their numbers are by definition, in 700 digits."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import warnings
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from clustersplit_cli.cli.app import run

DIGITS = Context(prec=700, Emin=-999999, Emax=999999)
PROMISED = {"dense": Decimal("1e-5"), "linear": Decimal("1e-5"), "nystrom": Decimal("1e-3")}
"""As docs/verify.md says: of the value, or of the scatter that it is a difference of."""

Numbers = NDArray[np.object_]


@dataclass(frozen=True)
class Case:
    """Rows, and how they are split."""

    rows: NDArray[Any]
    kernel: str
    standardize: str = "none"
    gamma: str | None = None
    degree: int | None = None
    engine: str = "local"

    @property
    def words(self) -> list[str]:
        """The command's options."""
        said = ["--kernel", self.kernel, "--standardize", self.standardize]
        said += [] if self.gamma is None else ["--gamma", self.gamma]
        said += [] if self.degree is None else ["--degree", str(self.degree)]
        return said


def exactly(rows: NDArray[Any]) -> Numbers:
    """The same numbers, which binary fractions are exactly."""
    return np.array([[Decimal(value.item()) for value in row] for row in rows], dtype=object)


def root(values: Numbers) -> Numbers:
    """Square roots."""
    return np.vectorize(lambda value: value.sqrt(), otypes=[object])(values)


def of_length_one(rows: Numbers) -> Numbers:
    """Every row divided by its length; rows of zeros stay."""
    lengths = root((rows * rows).sum(axis=1))
    return rows / np.where(lengths > 0, lengths, Decimal(1))[:, None]


def kernel_matrix(case: Case, gamma: float | None, degree: int | None) -> Numbers:
    """Every kernel value by its formula."""
    rows, n = exactly(case.rows), len(case.rows)
    if case.standardize == "zscore":
        rows = rows - rows.sum(axis=0) / n
        deviation = root((rows * rows).sum(axis=0) / n)
        rows = rows / np.where(deviation > 0, deviation, Decimal(1))
    if case.standardize == "l2":
        rows = of_length_one(rows)
    if case.kernel == "cosine":
        rows = of_length_one(rows)
    product = rows @ rows.T
    if case.kernel == "rbf":
        assert gamma is not None
        squares = np.diagonal(product)
        squared = squares[:, None] + squares[None, :] - 2 * product
        return np.vectorize(lambda value: (-Decimal(gamma) * value).exp(), otypes=[object])(squared)
    if case.kernel == "laplacian":
        assert gamma is not None
        apart = np.abs(rows[:, None, :] - rows[None, :, :]).sum(axis=2)
        return np.vectorize(lambda value: (-Decimal(gamma) * value).exp(), otypes=[object])(apart)
    if case.kernel == "polynomial":
        assert gamma is not None and degree is not None
        return (Decimal(gamma) * product + 1) ** degree
    return product


def by_definition(matrix: Numbers, members: NDArray[np.bool_]) -> tuple[Decimal, Decimal, Decimal]:
    """MMD², Psi and total scatter."""

    def total(left: NDArray[np.bool_], right: NDArray[np.bool_]) -> Decimal:
        return Decimal(matrix[np.ix_(left, right)].sum())

    val, train = members, ~members
    n_val, n_train, every = int(val.sum()), int(train.sum()), np.ones(len(members), dtype=bool)
    squared = total(val, val) / n_val**2 + total(train, train) / n_train**2
    squared -= 2 * total(val, train) / (n_val * n_train)
    trace = Decimal(np.diagonal(matrix).sum())
    psi = trace - total(val, val) / n_val - total(train, train) / n_train
    return squared, psi, trace - total(every, every) / len(members)


def table(rows: NDArray[Any]) -> pa.Table:
    """One column per feature, and two classes."""
    columns = {f"f{column}": values for column, values in enumerate(rows.T)}
    return pa.table({**columns, "label": [("a", "b")[row % 2] for row in range(len(rows))]})


def called(words: list[str]) -> tuple[int, str]:
    """Run a command; its exit code, and what it said on standard error."""
    said = io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        code = run(words)
    told = [str(warning.message) for warning in warned if issubclass(warning.category, RuntimeWarning)]
    return code, said.getvalue() + "".join(f"RuntimeWarning: {text}\n" for text in told)


def faults(case: Case, folder: Path, *, verified: bool = True) -> tuple[str, list[str]]:
    """Split the rows: what became of it, and everything that is wrong with it."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    pq.write_table(table(case.rows), folder / "rows.parquet", row_group_size=5)
    quick = ["--columns", "f*", "--restarts", "2", "--effort", "fast", "--threads", "1", "--h", "0.3"]
    code, said = called(
        [
            "split",
            str(folder / "rows.parquet"),
            *quick,
            *case.words,
            "--engine",
            case.engine,
            "--out",
            str(out),
            "-q",
        ]
    )
    wrong = [line for line in said.splitlines() if "RuntimeWarning" in line]
    if code == 2:
        errors = [line for line in said.splitlines() if line.startswith("clustersplit: error")]
        lines = [line for line in said.splitlines() if line.startswith("error")] + errors
        return "refused: " + (lines or ["?"])[0], wrong if len(lines) == 1 else [*wrong, f"says {said!r}"]
    if code != 0:
        return "failed", [*wrong, f"exit code {code}: {said}"]
    text = (out / "report.json").read_text()
    wrong += [f"the report holds {word}" for word in ("NaN", "Infinity") if word in text]
    report = json.loads(text)
    members = np.isin(np.arange(len(case.rows)), np.load(out / "val.npy"))
    with localcontext(DIGITS):
        matrix = kernel_matrix(case, report["mmd"]["gamma"], report["config"]["degree"])
        squared, psi, scatter = by_definition(matrix, members)
        promised = PROMISED[report["mmd"]["geometry"]]
        slack = promised * scatter
        of_mmd = max(slack / len(members), promised * squared)
        found = {
            "mmd.squared": (report["mmd"]["squared"], squared, of_mmd),
            "objective.psi": (report["objective"]["psi"], psi, slack),
            "objective.ssq_total": (report["objective"]["ssq_total"], scatter, slack),
        }
        for name, (stated, true, allowed) in found.items():
            if not abs(Decimal(stated) - true) <= allowed:
                wrong.append(f"{name} is {stated}, by definition {float(true)}")
        bound = report["bound"] and report["bound"]["mmd_upper"]
        if bound is not None and Decimal(bound) ** 2 < squared - of_mmd:
            wrong.append(f"the bound {bound} is below the MMD {float(squared) ** 0.5}")
    if report["objective"]["identity_residual"] > 1e-3:
        wrong.append(f"identity residual {report['objective']['identity_residual']}")
    if verified:
        code, said = called(["verify", str(out)])
        if code:
            failed = [line for line in said.splitlines() if "failed" in line or "error" in line]
            wrong.append(f"verify gives {code}: {failed}")
        wrong += [line for line in said.splitlines() if "RuntimeWarning" in line]
    return "accepted", wrong
