"""Leave one domain out: it becomes the validation set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.search.problem import Members
from clustersplit_cli.errors import InputError, UsageError


def leave_one_out(codes: NDArray[np.integer], values: Sequence[object], name: str) -> Members:
    """Put the rows of the named domain, and no others, into validation.

    Parameters
    ----------
    codes : (n,), the domain of every row as an index into `values`.
    """
    if len(values) < 2:
        raise InputError(
            f"there is only one domain, {values[0]}, so leaving it out leaves no training rows",
            hint="leave-one-domain-out needs two domains or more",
        )
    names = [str(value) for value in values]
    if name not in names:
        raise UsageError(
            f"--leave {name}: there is no such domain", hint=f"choose one of {', '.join(names[:10])}"
        )
    return np.asarray(codes == names.index(name))
