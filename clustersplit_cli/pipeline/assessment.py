"""Judging a split: what others could reach, how good it is, and proof that it is a fixed point."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from clustersplit_cli.core.assignment.cbc import AssignmentProgram, cbc_version
from clustersplit_cli.core.baselines import RandomMMD, of_size, random_mmd
from clustersplit_cli.core.bound.bound import mmd_upper_bound
from clustersplit_cli.core.certificate import (
    FixedPoint,
    certify_by_cbc,
    certify_by_threshold,
    certify_program,
)
from clustersplit_cli.core.constraints.cells import Constraints
from clustersplit_cli.core.constraints.requirements import Requirements
from clustersplit_cli.core.search.problem import Evaluation, Members, evaluate
from clustersplit_cli.options import CheckedOptions
from clustersplit_cli.pipeline.context import Setting
from clustersplit_cli.progress import Stopwatch

CBC_CERTIFICATE_ROWS = 50_000
BY_THRESHOLD = "threshold"
"""A way to certify that users cannot ask for: that of engines which never have all rows in one place."""
PROGRAMMED_SPLITS = 10
"""Random splits, where each takes a program."""
COSTLY_BOUND = 4e11
"""Rows times squared factors of the kernel, beyond which the bound takes longer than the split."""


@dataclass(frozen=True)
class Context:
    """What splits can reach: an upper bound on their MMD, and the MMD of random ones."""

    bound: float | None
    random: RandomMMD


def measure_context(setting: Setting, stopwatch: Stopwatch, n_val: int | None = None) -> Context:
    """Measure what does not depend on the split that is found.

    Parameters
    ----------
    n_val : validation rows of a split that heeds no quotas: random splits of another size have another MMD.
    """
    with stopwatch.step("bound"):
        bound = upper_bound(setting)
    problem, streams = setting.problem, setting.streams.baseline
    with stopwatch.step("baseline"):
        if n_val is None:
            random = random_mmd(problem, streams, drawn_splits(setting))
        else:
            random = random_mmd(replace(problem, constraints=of_size(problem.n, n_val)), streams)
    return Context(bound, random)


def measure(setting: Setting, members: Members, stopwatch: Stopwatch) -> Evaluation:
    """Measure a split in float64."""
    with stopwatch.step("measure"):
        return evaluate(setting.problem, members)


def prove(
    setting: Setting,
    members: Members,
    measured: Evaluation,
    stopwatch: Stopwatch,
    program: AssignmentProgram | None = None,
) -> tuple[Evaluation, FixedPoint | None]:
    """Prove that a split is a fixed point; return it with what was measured."""
    how, constraints = setting.options.certify, setting.problem.constraints
    with stopwatch.step("certificate"):
        if setting.requirements.separates:
            return measured, certify(measured, members, constraints, how, program)
        return measured, certify_coupled(measured, members, setting.requirements, how)


class Ahead:
    """What need not wait for the search to end.

    The program that certifies whatever split will be found is stated once its constraints are known, while
    the kernel is computed; the context is measured once there is a kernel; and the split that is found is
    certified while the account of the search is drawn up.
    """

    def __init__(self, options: CheckedOptions, stopwatch: Stopwatch) -> None:
        self._how, self._stopwatch = options.certify, stopwatch
        self._aside = ThreadPoolExecutor(3)
        self._context: Future[Context | None] | None = None
        self.certified: Future[tuple[Evaluation, FixedPoint | None]] | None = None

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *exception: object) -> None:
        self._aside.shutdown(cancel_futures=True)

    def state(self, requirements: Requirements) -> None:
        """State the program of the constraints."""
        self._program = self._aside.submit(self._state_program, requirements)

    def begin(self, setting: Setting) -> None:
        """Begin to measure the context, unless the search is about to keep all workers busy by passes."""
        self._setting = setting
        if not setting.problem.geometry.is_low_rank:
            self.meanwhile()

    def meanwhile(self) -> None:
        """Begin to measure the context, unless few passes are left, which it would only slow down."""
        if self._setting.memory.geometry != "linear":
            self._begin_context()

    def context(self) -> Context | None:
        """The context; None if it has to be measured after the search."""
        return self._begin_context().result()

    def _begin_context(self) -> Future[Context | None]:
        """Begin to measure the context if that has not begun."""
        if self._context is None:
            self._context = self._aside.submit(self._measure_context)
        return self._context

    def certify(self, members: Members, measured: Evaluation) -> None:
        """Begin to certify the split that was found."""
        setting, stopwatch = self._setting, self._stopwatch

        def certified() -> tuple[Evaluation, FixedPoint | None]:
            return prove(setting, members, measured, stopwatch, self._program.result())

        self.certified = self._aside.submit(certified)

    def _state_program(self, requirements: Requirements) -> AssignmentProgram | None:
        cbc_version()  # the report states it, and asking takes a process
        if not (requirements.separates and _by_cbc(requirements.working, self._how)):
            return None
        return AssignmentProgram(requirements.working)

    def _measure_context(self) -> Context | None:
        """The context, unless it shares random streams with the search: then it has to wait."""
        if not self._setting.requirements.separates:
            return None
        problem = self._setting.problem
        if not problem.geometry.is_low_rank:
            _ = self._setting.image  # first: the search waits for it
        return measure_context(self._setting, self._stopwatch)


def drawn_splits(setting: Setting) -> Members | None:
    """Random splits where cells hang together; None where rows can be drawn cell by cell."""
    if setting.requirements.separates:
        return None
    return setting.coupling.random_splits(setting.streams.baseline[:PROGRAMMED_SPLITS])


def upper_bound(setting: Setting, *, looking: bool = True) -> float | None:
    """Bound the MMD of all splits with these counts; None with tolerances, or where it costs too much.

    Parameters
    ----------
    looking : whether to look how far splits reach, which engines that read in pieces do not.
    """
    if setting.options.bound == "never" or not all(f.is_exact for f in setting.requirements.families):
        return None
    if setting.options.bound == "auto" and setting.memory.geometry != "dense":
        factors = setting.memory.landmarks or setting.dataset.features.shape[1]
        # Their eigenvalues cost as much as fifty products.
        if max(setting.problem.n, 50 * factors) * factors**2 > COSTLY_BOUND:
            return None
    # Nyström kernels may be negative where the kernel they stand for is not.
    if setting.requirements.separates:
        return mmd_upper_bound(setting.problem, setting.image, looking=looking)
    # Splits that meet several families meet each of them: the smallest of their bounds holds.
    problems = [replace(setting.problem, constraints=family) for family in setting.requirements.families]
    return min(mmd_upper_bound(problem, setting.image) for problem in problems)


def certify(
    measured: Evaluation,
    members: Members,
    constraints: Constraints,
    how: str,
    program: AssignmentProgram | None = None,
) -> FixedPoint | None:
    """Certify the split by CBC, or above the size where that pays by thresholds.

    Parameters
    ----------
    program : that of the constraints, if it has been stated before.
    """
    if how == "never":
        return None
    if _by_cbc(constraints, how):
        return certify_by_cbc(measured, members, constraints, program)
    return certify_by_threshold(measured, members, constraints)


def _by_cbc(constraints: Constraints, how: str) -> bool:
    """Whether CBC certifies splits."""
    return how == "always" or (how not in ("never", BY_THRESHOLD) and constraints.n <= CBC_CERTIFICATE_ROWS)


def certify_coupled(
    measured: Evaluation, members: Members, requirements: Requirements, how: str
) -> FixedPoint | None:
    """Certify a split whose cells hang together by CBC, or above the size where that pays by HiGHS."""
    if how == "never":
        return None
    by_cbc = how == "always" or requirements.n_atoms <= CBC_CERTIFICATE_ROWS
    return certify_program(measured, members, requirements, "cbc" if by_cbc else "highs")
