"""How long a search goes on."""

from __future__ import annotations

from dataclasses import dataclass

CHEAP_ROWS = 8192


@dataclass(frozen=True)
class Effort:
    """How long to search beyond the starts.

    Attributes
    ----------
    batch : perturbed and crossed splits per round; half as many where starts agree, two thirds on small
        problems, where every one of them is refined.
    patience : rounds without a worthwhile gain before giving up.
    max_rounds : rounds of perturbation at most.
    islands : how often perturbation begins anew, where starts do not agree.
    candidates : splits refined on the kernel itself.
    near_diagonal : the same on kernels that are nearly diagonal, where the first is seldom far from the best.
    exact_rounds : rounds of perturbation on the kernel itself, after refining.
    cheap_rounds : the same up to `CHEAP_ROWS` rows, where a pass over the kernel costs little, if starts were
        slow to converge.
    after : a search that is done before, so that more effort never finds a worse split.
    """

    batch: int
    patience: int
    max_rounds: int
    islands: int
    candidates: int
    near_diagonal: int
    exact_rounds: int
    cheap_rounds: int
    after: Effort | None = None


FAST = Effort(
    batch=0,
    patience=0,
    max_rounds=0,
    islands=0,
    candidates=3,
    near_diagonal=1,
    exact_rounds=0,
    cheap_rounds=0,
)
NORMAL = Effort(
    batch=36,
    patience=3,
    max_rounds=20,
    islands=1,
    candidates=8,
    near_diagonal=1,
    exact_rounds=0,
    cheap_rounds=1,
)
THOROUGH = Effort(
    batch=36,
    patience=9,
    max_rounds=20,
    islands=3,
    candidates=12,
    near_diagonal=12,
    exact_rounds=8,
    cheap_rounds=8,
    after=NORMAL,
)
EFFORTS = {"fast": FAST, "normal": NORMAL, "thorough": THOROUGH}
