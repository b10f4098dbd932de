"""Several families of cells at once: quotas that agree with each other, and the demand they make on units."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clustersplit_cli.core.constraints.cells import Cells, round_half_up
from clustersplit_cli.core.constraints.feasibility import Demand
from clustersplit_cli.core.constraints.program import column_classes
from clustersplit_cli.core.constraints.quotas import FREE, TRAIN, VAL, Quotas, ValidationQuotas, split_quotas
from clustersplit_cli.errors import InfeasibleError

EXTRA = 100.0
"""What a quota that is neither its share rounded down nor up costs, against at most 1 for those."""


def composition(families: Sequence[Cells], units: NDArray[np.int64] | None) -> Any:
    """How many rows of each cell, all families one below the other, a unit has: sparse (cells, units)."""
    from scipy import sparse

    n = len(families[0].codes)
    units = np.arange(n) if units is None else units
    n_units = int(units.max()) + 1
    blocks = [
        sparse.csr_matrix((np.ones(n, np.int64), (cells.codes, units)), shape=(len(cells.sizes), n_units))
        for cells in families
    ]
    matrix = sparse.vstack(blocks).tocsr()
    matrix.sum_duplicates()
    return matrix


def units_pinned(pinned: NDArray[np.int64], units: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """What each unit is forced to: what any of its rows is.

    Raises
    ------
    InfeasibleError
        If a unit has rows that are forced to both sides.
    """
    if units is None:
        return pinned
    n_units = int(units.max()) + 1
    to_val = np.bincount(units[pinned == VAL], minlength=n_units) > 0
    to_train = np.bincount(units[pinned == TRAIN], minlength=n_units) > 0
    torn = np.flatnonzero(to_val & to_train)
    if len(torn):
        rows = [int(np.flatnonzero((units == torn[0]) & (pinned == side))[0]) for side in (TRAIN, VAL)]
        raise InfeasibleError(
            f"{len(torn)} unit{'s' * (len(torn) > 1)} that must stay together have rows forced to both sides,"
            f" such as row {rows[0]} to training and row {rows[1]} to validation",
            hint="force all of a unit's rows to the same side",
        )
    return np.where(to_val, VAL, np.where(to_train, TRAIN, FREE)).astype(np.int64)


def limits_of(
    cells: Cells,
    holdout: Fraction,
    tolerance: Sequence[Fraction | None],
    rounding: str,
    target: NDArray[np.int64] | None,
) -> Quotas:
    """Bounds around given targets, or around the cells' own rounded shares."""
    each = [allowed if allowed is not None else Fraction(0) for allowed in tolerance]
    quotas = split_quotas(cells, holdout, each, rounding)
    if target is None:
        return quotas
    exact = np.array([allowed == 0 for allowed in each])
    plain = (split_quotas(cells, holdout, each, "nearest") if not exact.all() else quotas).validation
    lower = np.where(exact, target, np.minimum(plain.lower, target))
    upper = np.where(exact, target, np.maximum(plain.upper, target))
    return Quotas.of_split(ValidationQuotas(cells, target, lower, upper), holdout)


def demand_of(
    families: Sequence[Cells],
    limits: Sequence[Quotas],
    pins: NDArray[np.int64],
    units: NDArray[np.int64] | None,
) -> Demand:
    """The bounds over classes of units; a last cell, of all rows, keeps either side from being empty."""
    from scipy import sparse

    matrix = composition(families, units)
    fixed = units_pinned(pins, units)
    classes = column_classes(matrix.tocsc())
    n_classes = int(classes.max()) + 1
    examples = np.empty(n_classes, dtype=np.int64)
    examples[classes[::-1]] = np.arange(len(classes) - 1, -1, -1)
    n = len(pins)
    sizes = np.ones(n, np.int64) if units is None else np.bincount(units)
    return Demand(
        sparse.vstack([matrix.tocsc()[:, examples], sizes[None, examples]]).tocsr(),
        np.bincount(classes[fixed == FREE], minlength=n_classes),
        np.append(matrix @ (fixed == VAL).astype(np.int64), sizes[fixed == VAL].sum()),
        np.concatenate([*(family.validation.lower for family in limits), [1]]),
        np.concatenate([*(family.validation.upper for family in limits), [n - 1]]),
    )


def goal_of(
    demand: Demand, families: Sequence[Cells], holdout: Fraction, units: NDArray[np.int64] | None
) -> NDArray[np.float64] | None:
    """Every class's own share; units come in too many classes for that."""
    return None if units is not None else np.asarray(float(holdout) * demand.available, dtype=np.float64)


def joint_targets(families: Sequence[Cells], holdout: Fraction) -> list[NDArray[np.int64]]:
    """Round the shares of several families so that all quotas can be met at once, as near as possible.

    With two families every quota is its share rounded down or up and the total is the rounded total:
    the unrounded shares meet such bounds, and the program over joint cells is totally unimodular.
    """
    from scipy import sparse
    from scipy.optimize import Bounds, LinearConstraint, milp

    matrix = composition(families, None)
    classes = column_classes(matrix.tocsc())
    available = np.bincount(classes)
    examples = np.unique(classes, return_index=True)[1]
    joint = matrix.tocsc()[:, examples].tocsr()
    n_cells, n_classes = joint.shape
    shares = [holdout * int(size) for cells in families for size in cells.sizes]
    floors = np.array([int(share) for share in shares], dtype=np.float64)
    remainder = np.array([float(share - int(share)) for share in shares])
    one = sparse.identity(n_cells, format="csr")
    # count - up - more + less = floor: rounding up costs what it is farther away than rounding down.
    program = sparse.bmat(
        [
            [joint, -one, -one, one],
            [sparse.csr_matrix(np.ones((1, n_classes))), None, None, None],
        ],
        format="csr",
    )
    total = round_half_up(holdout * len(families[0].codes))
    right = np.append(floors, total)
    found = milp(
        np.concatenate([np.zeros(n_classes), 1.0 - 2.0 * remainder, np.full(2 * n_cells, EXTRA)]),
        integrality=np.ones(program.shape[1]),
        bounds=Bounds(
            np.zeros(program.shape[1]),
            np.concatenate([available, (remainder > 0).astype(np.float64), np.full(2 * n_cells, np.inf)]),
        ),
        constraints=LinearConstraint(program, right, right),
    )
    counts = joint @ np.round(found.x[:n_classes]).astype(np.int64)
    ends = np.cumsum([len(cells.sizes) for cells in families])[:-1]
    return [part.astype(np.int64) for part in np.split(counts, ends)]
