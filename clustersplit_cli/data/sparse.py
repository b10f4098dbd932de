"""Sparse feature matrices: recognised by their looks, checked without becoming dense."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.errors import InputError


def is_sparse(X: Any) -> bool:
    """Whether X is a SciPy sparse matrix or array."""
    return type(X).__module__.startswith("scipy.sparse") and hasattr(X, "tocsr")


def checked_sparse(X: Any) -> Any:
    """Return X in canonical CSR form, of floats; X itself is never changed."""
    if X.ndim != 2 or X.shape[1] == 0:
        raise InputError(
            f"X has shape {X.shape}, features need two dimensions", hint="pass at least one column"
        )
    if X.dtype.kind not in "biuf":
        raise InputError(f"X holds values of type {X.dtype}, features need numbers", hint="use real numbers")
    from scipy.sparse import csr_array

    rows = csr_array(X, copy=True)
    rows = rows.astype(np.float32 if rows.dtype == np.float32 else np.float64)
    rows.sum_duplicates()
    rows.eliminate_zeros()
    return rows


def finite_sparse_rows(rows: Any) -> NDArray[np.bool_]:
    """Mark the rows without NaN and infinities."""
    bad = np.flatnonzero(~np.isfinite(rows.data))
    finite = np.ones(rows.shape[0], np.bool_)
    finite[np.searchsorted(rows.indptr, bad, side="right") - 1] = False
    return finite


def is_constant_sparse(rows: Any) -> bool:
    """Whether all rows are the same; the rows must be canonical."""
    counts = np.diff(rows.indptr)
    if (counts != counts[0]).any():
        return False
    shape = (rows.shape[0], counts[0])
    places, values = rows.indices.reshape(shape), rows.data.reshape(shape)
    return bool((places == places[0]).all() and (values == values[0]).all())
