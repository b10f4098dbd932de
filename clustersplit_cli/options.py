"""The options of a split as the user states them, checked before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from clustersplit_cli.errors import UsageError

if TYPE_CHECKING:
    from clustersplit_cli.core.constraints.tolerance import Tolerance

CERTIFY = ("auto", "always", "never")
SOLVERS = ("auto", "cbc")


@dataclass(frozen=True, kw_only=True)
class SplitOptions:
    """How to split. Numbers that must be exact are kept as the text they were given in.

    `gamma`, `degree`, `tolerance` and `rounding` are None where the user did not say.
    """

    holdout: str = "0.2"
    kernel: str = "rbf"
    gamma: str | None = None
    degree: int | None = None
    standardize: str = "none"
    tolerance: str | Sequence[str] | None = None
    rounding: str | None = None
    nystrom: str = "auto"
    restarts: int = 10
    effort: str = "normal"
    max_iter: int = 100
    seed: int = 0
    solver: str = "auto"
    certify: str = "auto"
    bound: str = "auto"
    memory: str | None = None
    threads: int | None = None


@dataclass(frozen=True, kw_only=True)
class CheckedOptions:
    """The same options, parsed and known to make sense together."""

    holdout: Fraction
    kernel: str
    gamma: str | float
    degree: int
    standardize: str
    tolerance: Tolerance
    rounding: str | None
    nystrom: str | int
    restarts: int
    effort: str
    max_iter: int
    seed: int
    solver: str
    certify: str
    bound: str
    budget: int
    threads: int

    @property
    def is_linear(self) -> bool:
        """Whether the kernel needs no matrix of its own."""
        return self.kernel in ("linear", "cosine")


def check_options(options: SplitOptions) -> CheckedOptions:
    """Parse and cross-check the options.

    Raises
    ------
    UsageError
        Naming the option, its value and a value that would do.
    """
    from clustersplit_cli.core.constraints.cells import ROUNDINGS, parse_holdout
    from clustersplit_cli.core.constraints.tolerance import parse_tolerances
    from clustersplit_cli.core.effort import EFFORTS
    from clustersplit_cli.core.geometry.kernels import KERNELS, STANDARDIZATIONS, parse_gamma
    from clustersplit_cli.core.parallel import available_cores
    from clustersplit_cli.engines.plan import memory_budget

    _one_of("--kernel", options.kernel, KERNELS)
    _one_of("--standardize", options.standardize, STANDARDIZATIONS)
    if options.rounding is not None:
        _one_of("--rounding", options.rounding, ROUNDINGS)
    _one_of("--solver", options.solver, SOLVERS)
    _one_of("--certify", options.certify, CERTIFY)
    _one_of("--bound", options.bound, CERTIFY)
    _one_of("--effort", options.effort, tuple(EFFORTS))
    _at_least("--restarts", options.restarts, 1)
    _at_least("--max-iter", options.max_iter, 1)
    _at_least("--seed", options.seed, 0)
    if options.threads is not None:
        _at_least("--threads", options.threads, 1)
    if options.gamma is not None and options.kernel in ("linear", "cosine"):
        raise UsageError(
            f"--gamma has no meaning for the {options.kernel} kernel",
            hint="drop --gamma, or use --kernel rbf",
        )
    if options.degree is not None:
        if options.kernel != "polynomial":
            raise UsageError(
                f"--degree has no meaning for the {options.kernel} kernel", hint="use --kernel polynomial"
            )
        _at_least("--degree", options.degree, 1)
    tolerances = [options.tolerance] if isinstance(options.tolerance, str) else options.tolerance or ()
    return CheckedOptions(
        holdout=parse_holdout(options.holdout),
        kernel=options.kernel,
        gamma=parse_gamma(options.gamma or "scale"),
        degree=options.degree or 3,
        standardize=options.standardize,
        tolerance=parse_tolerances(tolerances),
        rounding=options.rounding,
        nystrom=_parse_nystrom(options.nystrom, options.kernel),
        restarts=options.restarts,
        effort=options.effort,
        max_iter=options.max_iter,
        seed=options.seed,
        solver=options.solver,
        certify=options.certify,
        bound=options.bound,
        budget=memory_budget(options.memory),
        threads=options.threads or available_cores(),
    )


def parse_families(
    texts: Sequence[str] | None,
) -> tuple[tuple[str, ...] | None, tuple[tuple[str, ...], ...]]:
    """Read --stratify: all columns, and those of each family unless there is but one.

    All columns are None for the default, and () for the total size only.

    >>> parse_families(["label,domain"])
    (('label', 'domain'), ())
    >>> parse_families(["label", "domain"])
    (('label', 'domain'), (('label',), ('domain',)))
    """
    if not texts:
        return None, ()
    families = [() if text == "none" else tuple(word.strip() for word in text.split(",")) for text in texts]
    for text, words in zip(texts, families, strict=True):
        if "" in words or len(set(words)) < len(words):
            raise UsageError(
                f"--stratify '{text}' has an empty or repeated column",
                hint="for example --stratify label,domain",
            )
    repeated = [text for text, words in zip(texts, families, strict=True) if families.count(words) > 1]
    if repeated:
        raise UsageError(f"--stratify {repeated[0]} was given twice", hint="name every family of cells once")
    words = tuple(dict.fromkeys(word for family in families for word in family))
    return words, tuple(families) if len(families) > 1 else ()


def _parse_nystrom(text: str, kernel: str) -> str | int:
    if text in ("auto", "off"):
        return text
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise UsageError(
            f"--nystrom must be auto, off or a number of landmarks of at least 1, got '{text}'",
            hint="for example --nystrom 2000",
        )
    if kernel in ("linear", "cosine"):
        raise UsageError(
            f"--nystrom {text} has no meaning for the {kernel} kernel, which is exact at any size",
            hint="drop --nystrom",
        )
    return int(text)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option} '{value}' is unknown", hint=f"choose one of {', '.join(allowed)}")


def _at_least(option: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(
            f"{option} must be at least {least}, got {value}", hint=f"for example {option} {max(least, 1)}"
        )
