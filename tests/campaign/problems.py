"""Small problems solved by looking at every split: is what the program gives right, and is it the best?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.campaign import aims, oracle
from tests.campaign.findings import Outcome, read_report
from tests.campaign.process import call, fresh, run
from tests.campaign.tables import Random, one_of, pick

KIND = 2
FAMILIES = (
    *("split", "tolerance", "balanced", "families", "keep-together", "pins", "parts", "folds", "graded"),
    *("target", "drawn", "duplicates"),
)
WITHOUT_WIDTH = ("linear", "cosine", "tanimoto")
IN_PIECES = ("split", "tolerance", "balanced", "parts", "folds", "graded")
"""What is also asked of an engine that reads the rows in pieces."""
AUTO = ("keep-together", "duplicates")
"""Whole units, which may need more tolerance than there is."""
REFUSALS = ("constant", "the same", "zero", "length", "differ by too little", "needs all rows in memory")
"""Words of the errors with which rows are refused that a kernel, a scale or an engine has no number for."""
SHARES = (
    ("0.5", "0.5"),
    ("0.7", "0.3"),
    ("0.5", "0.25", "0.25"),
    ("0.6", "0.2", "0.2"),
    ("0.34", "0.33", "0.33"),
)
PARTED = ("parts", "folds", "drawn")
"""Into more than two parts."""
CLOSE = {"float32": 2e-6, "float64": 1e-8}
"""How near numbers come to their definition in float64, by the type of the features that the kernel keeps."""
OF_FACTORS = 1e-4
"""The same of kernels that are held as factors, in float32, with every row a landmark."""
SAME = {"float32": 2e-6, "float64": 1e-9}
"""Psi within this share of the scatter of the best is the best."""
CANCELS = {"float32": 0.02, "float64": 1e-6}
"""Where the scatter is less than this share of the kernel's values, digits are lost to their rounding."""
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Problem:
    """A table, what is asked of its split, and the words that ask it.

    Attributes
    ----------
    families : codes of each family of cells, and its name in the report.
    tolerance : relative to h; None: to be found.
    pinned : (n,) 0 training, 1 validation, -1 free.
    units : (n,) rows with equal numbers stay together.
    missing : (n, d) features that the file does not have; `x` has what is taken for them.
    target : rows of where a model would be used; None where there are none.
    aim : what validation is to be for them.
    engine : where the rows are held.
    """

    kind: str
    x: NDArray[Any]
    columns: dict[str, NDArray[Any]]
    families: tuple[NDArray[np.int64], ...]
    holdout: Fraction
    tolerance: Fraction | None
    shares: tuple[Fraction, ...]
    k: int
    pinned: Labels
    units: Labels
    kernel: str
    gamma: str
    degree: int
    standardize: str
    words: tuple[str, ...]
    missing: NDArray[np.bool_] | None = None
    target: NDArray[Any] | None = None
    aim: str = "worst"
    engine: str = "local"

    @property
    def is_parted(self) -> bool:
        """Whether it asks for more than two sides."""
        return self.kind in PARTED

    @property
    def close(self) -> float:
        """How near numbers are to their definition."""
        is_factored = self.engine != "local" and self.kernel != "linear"
        return OF_FACTORS if is_factored else CLOSE[self.x.dtype.name]

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.x)


@dataclass
class Wish:
    """What is asked of a split; as in `Problem`, with names of columns for families.

    Attributes
    ----------
    words : those that ask for it.
    """

    stratify: list[tuple[str, ...]]
    pinned: Labels
    units: Labels
    tolerance: Fraction | None = Fraction(0)
    shares: tuple[Fraction, ...] = ()
    k: int = 2
    words: list[str] = field(default_factory=list)


def make(seed: int, number: int) -> Problem:
    """A problem, from a seed and a number alone; every family of constraints in turn."""
    rng = np.random.default_rng([seed, KIND, number])
    kind = FAMILIES[number % len(FAMILIES)]
    n = int(rng.integers(4, 9 if kind in PARTED else 13))
    if kind not in (*PARTED, *AUTO) and rng.random() < 0.1:
        n = int(rng.integers(13, 18))  # too many splits for the program to look at all
    kernel = one_of(rng, ["rbf", "rbf", "laplacian", "linear", "cosine", "polynomial", "tanimoto"])
    x, missing = _rows(rng, kind, kernel, n)
    columns = {
        "label": rng.integers(0, int(rng.integers(1, 4)), n),
        "domain": rng.integers(0, int(rng.integers(1, 3)), n),
        "unit": rng.integers(0, max(2, n // 2), n),
    }
    holdout = Fraction(one_of(rng, ["0.2", "0.25", "0.29", "0.3333", "0.5", "0.4", "0.7"]))
    wish = _wish(rng, kind, x, columns)
    words = wish.words
    gamma = one_of(rng, ["scale", "1/d", "median", "0.5", "2"])
    degree = int(one_of(rng, [1, 2, 3]))
    standardize = one_of(rng, ["none", "none", "zscore", "l2"]) if kernel != "tanimoto" else "none"
    words += ["--kernel", kernel, "--standardize", standardize]
    words += ["--gamma", gamma] if kernel not in WITHOUT_WIDTH else []
    words += ["--degree", str(degree)] if kernel == "polynomial" else []
    for family in wish.stratify:
        words += ["--stratify", ",".join(family) or "none"]
    words += ["--impute", "median"] if missing is not None else []
    target, aim, engine = None, "worst", "local"
    if kind == "target":
        aim = one_of(rng, aims.AIMS)
        target = (x[rng.integers(0, n, int(rng.integers(2, 9)))] + one_of(rng, [0, 1, 3])).astype(x.dtype)
        words += ["--target", "target.parquet", "--aim", aim, *["--weights"] * int(rng.random() < 0.4)]
    if rng.random() < 0.1 and kind in IN_PIECES and gamma != "median" and missing is None:
        engine = "stream"
        words += ["--engine", "stream", "--format", "npy"]
    if kind in ("tolerance", *AUTO):
        words += ["--tolerance", "auto" if wish.tolerance is None else str(float(wish.tolerance))]
    if kind not in PARTED:
        words += ["--h", str(float(holdout))]
    words += ["--seed", str(int(rng.integers(5))), "--effort", pick(rng, [(0.7, "normal"), (0.3, "fast")])]
    return Problem(
        kind,
        x,
        columns,
        tuple(_codes([columns[name] for name in family], n) for family in wish.stratify),
        holdout,
        wish.tolerance,
        wish.shares,
        wish.k,
        wish.pinned,
        wish.units,
        kernel,
        gamma,
        degree,
        standardize,
        tuple(words),
        missing,
        target,
        aim,
        engine,
    )


def _wish(rng: Random, kind: str, x: NDArray[Any], columns: dict[str, NDArray[Any]]) -> Wish:
    """What problems of a kind ask for."""
    n = len(x)
    stratify: tuple[str, ...] = one_of(rng, [("label",), ("label", "domain"), (), ("domain",)])
    wish = Wish([stratify], np.full(n, -1), np.arange(n))
    if kind == "tolerance":
        wish.tolerance = Fraction(one_of(rng, ["0.1", "0.25", "0.5", "1"]))
    elif kind == "balanced":
        wish.words = ["--rounding", "balanced"]
    elif kind == "families":
        wish.stratify = [("label",), ("domain",)]
    elif kind in AUTO:
        wish.tolerance = one_of(rng, [None, None, Fraction("0.5"), Fraction(1), Fraction(2)])
        is_by_name = kind == "keep-together"
        wish.units = columns["unit"] if is_by_name else _codes([*x.T], n)
        wish.words = ["--keep-together", "unit" if is_by_name else "exact-duplicates"]
    elif kind == "pins":
        rows = rng.permutation(n)[: int(rng.integers(1, 4))]
        wish.pinned[rows] = rng.integers(0, 2, len(rows))
    elif kind in ("parts", "drawn"):
        texts = one_of(rng, SHARES if kind == "parts" else SHARES[2:])
        wish.shares, wish.k = tuple(map(Fraction, texts)), len(texts)
        named = ",".join(f"p{part}={share}" for part, share in enumerate(texts))
        wish.words = ["--parts", named + ":random" * int(kind == "drawn")]
    elif kind == "folds":
        wish.k = int(one_of(rng, [2, 3, 3, 4]))
        wish.words = ["--k", str(wish.k)]
    elif kind == "graded":
        wish.words = ["--severity", one_of(rng, ["0", "0.25", "0.5", "0.9"])]
    return wish


def _rows(rng: Random, kind: str, kernel: str, n: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Features that suit a kind and a kernel, and which of them the file is to lack."""
    x = _features(rng, n, int(rng.integers(1, 5)))
    if kind == "duplicates":
        repeated = x[rng.integers(0, max(3, n // 2), n)]
        x = repeated if repeated.var(axis=0).any() else x
    if kernel == "tanimoto":
        return np.abs(np.round(x)), None
    missing = _missing(rng, x) if rng.random() < 0.1 and kernel != "cosine" and kind != "duplicates" else None
    return (
        (x, None)
        if missing is None
        else (oracle.imputed(np.where(missing, np.nan, x)).astype(x.dtype), missing)
    )


def _missing(rng: Random, x: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Features to leave out of the file; every column keeps some that differ."""
    missing = rng.random(x.shape) < 0.2
    kept = np.where(missing, np.nan, x)
    is_sound = (~missing).any(axis=0).all() and (np.nanmax(kept, axis=0) > np.nanmin(kept, axis=0)).all()
    return missing if missing.any() and is_sound else None


def _features(rng: Random, n: int, d: int) -> NDArray[Any]:
    """Rows that leave something to choose: never all the same, no row of zeros."""
    kind = one_of(rng, ["normal", "normal", "integers", "duplicates", "clusters", "offset"])
    x = rng.normal(size=(n, d))
    if kind == "integers":
        x = rng.integers(-2, 3, (n, d)).astype(np.float64)
    elif kind == "duplicates":
        x = x[rng.integers(0, max(2, n // 2), n)]
    elif kind == "clusters":
        x += 5.0 * rng.integers(0, 2, (n, 1))
    elif kind == "offset":
        x += 20.0
    x[(x == 0).all(axis=1)] = 1.0
    if len(np.unique(x, axis=0)) < 2 or not x.var(axis=0).any():
        x[0] += 1.0
    return x.astype(one_of(rng, [np.float32, np.float64]))


def _codes(columns: Sequence[NDArray[Any]], n: int) -> NDArray[np.int64]:
    """One number per combination of values."""
    if not columns:
        return np.zeros(n, dtype=np.int64)
    return np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)[1].reshape(n).astype(np.int64)


def write(problem: Problem, folder: Path) -> None:
    """Write the problem's files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    x = problem.x if problem.missing is None else np.where(problem.missing, np.nan, problem.x)
    x = x.astype(problem.x.dtype)
    table = {**{f"f{column}": x[:, column] for column in range(x.shape[1])}, **problem.columns}
    if problem.target is not None:
        of_target = {f"f{column}": problem.target[:, column] for column in range(x.shape[1])}
        pq.write_table(pa.table(of_target), folder / "target.parquet")
    pq.write_table(pa.table(table), folder / "feats.parquet")
    for path, _, rows in _pins(problem):
        (folder / path).write_text("".join(f"{row}\n" for row in rows))


def command_line(problem: Problem) -> tuple[str, ...]:
    """The words that have the problem solved."""
    given = [word for path, option, _ in _pins(problem) for word in (option, path)]
    command = "kfold" if problem.kind == "folds" else "split"
    rest = ("--out", "out", "--quiet", *(("--certify", "never") if problem.target is None else ()))
    return (command, "feats.parquet", "--columns", "f*", *problem.words, *given, *rest)


def _pins(problem: Problem) -> list[tuple[str, str, list[int]]]:
    """Files of forced rows, the options that name them, and the rows."""
    sides = [np.flatnonzero(problem.pinned == side).tolist() for side in (0, 1)]
    options = ("--force-train", "--force-val")
    return [(f"pins{side}.txt", options[side], rows) for side, rows in enumerate(sides) if rows]


def examine(seed: int, number: int, place: Path) -> Outcome:
    """Have a problem solved, and compare every number and the split itself with the definitions."""
    outcome, problem = Outcome(), make(seed, number)
    fresh(place)
    call(lambda: write(problem, place / "work"))
    result = run(command_line(problem), place)
    outcome.ran(result)
    outcome.tags[f"{problem.kind}: problems"] += 1
    try:
        x = oracle.standardized(problem.x, problem.standardize)
        has_width = problem.kernel not in WITHOUT_WIDTH
        gamma = oracle.width(x, problem.gamma, problem.kernel) if has_width else None
        K = oracle.kernel_matrix(x, problem.kernel, gamma, problem.degree)
    except ZeroDivisionError:
        return outcome
    if result.code not in (0, 3):
        is_refusal = result.code == 2 and any(word in result.err for word in REFUSALS)
        if not is_refusal:
            outcome.add(f"{problem.kind}: exit {result.code} on a sound problem", result.err[-400:])
        return outcome
    labelings = oracle.all_labelings(problem.n, problem.k)
    if result.code == 3:
        outcome.tags[f"{problem.kind}: cannot be met"] += 1
        if _is_feasible_for_sure(problem, labelings):
            outcome.add(f"{problem.kind}: refused what can be met", result.err[-400:])
        return outcome
    report = read_report(place / "work" / "out")
    labels = _labels(problem, place / "work" / "out")
    for rule, detail in (
        *_wrong_numbers(problem, K, labels, report),
        *_wrong_counts(problem, labels, report, labelings),
        *_wrong_grade(problem, report),
    ):
        outcome.add(f"{problem.kind}: {rule}", detail)
    if outcome.findings:
        return outcome
    feasible = _feasible(problem, labels, report, labelings)
    if not (feasible == labels).all(axis=1).any():
        outcome.add(f"{problem.kind}: the split breaks its own bounds", str(labels.tolist()))
    elif problem.target is None:
        _compare_with_best(problem, K, labels, report, feasible, outcome)
    else:
        joint = _joint_kernel(problem, x, gamma)
        _look_at_target(problem, joint, labels, report, feasible, place / "work" / "out", outcome)
    return outcome


def _joint_kernel(problem: Problem, x: oracle.Floats, gamma: float | None) -> oracle.Floats:
    """The kernel of the rows and, after them, the target's."""
    assert problem.target is not None
    target = oracle.standardized(problem.target, problem.standardize, problem.x)
    return oracle.kernel_matrix(np.concatenate([x, target]), problem.kernel, gamma, problem.degree)


def _look_at_target(
    problem: Problem,
    joint: oracle.Floats,
    labels: Labels,
    report: dict[str, Any],
    feasible: NDArray[np.int8],
    out: Path,
    outcome: Outcome,
) -> None:
    """Compare what is said of a target with the definitions, and the split with the best one for its aim."""
    stated, close = report["target"], 10 * problem.close
    wrong = [*aims.wrong_distances(joint, labels, stated, close)]
    if "--weights" in problem.words:
        wrong += aims.wrong_weights(joint, labels, out, stated, close)
    what = f"target {problem.aim}"
    if problem.aim in aims.OWN_MEASURE:
        values = aims.value_of_all(joint, problem.n, problem.aim, feasible)
        reached = float(aims.value_of_all(joint, problem.n, problem.aim, labels[None, :])[0])
        size = close * float(np.abs(joint).max())
        wrong += aims.wrong_certificate(values.tolist(), reached, problem.aim, stated, size)
        is_best = (
            reached >= values.max() - size if problem.aim == aims.EXACT else reached <= values.min() + size
        )
        if problem.aim == aims.EXACT and not is_best:
            wrong.append(("not the optimum that is promised", f"{reached!r}, the best is {values.max()!r}"))
        outcome.tags[f"{what}: compared"] += 1
        outcome.tags[f"{what}: best"] += int(is_best)
    for rule, detail in wrong:
        outcome.add(f"{what}: {rule}", detail)


def _labels(problem: Problem, out: Path) -> Labels:
    """The part of every row, from the index files: 1 for validation."""
    if problem.kind == "folds":
        return np.asarray(np.load(out / "folds.npy", allow_pickle=False), dtype=np.int64)
    names = [f"p{part}" for part in range(problem.k)] if problem.is_parted else ["train", "val"]
    labels = np.full(problem.n, -1)
    for part, name in enumerate(names):
        labels[np.load(out / f"{name}.npy", allow_pickle=False)] = part
    return labels


def _wrong_numbers(
    problem: Problem, K: oracle.Floats, labels: Labels, report: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """Where Psi, MMD, scatter, identity or trace are not what the definitions say."""
    everyone = np.arange(problem.n)
    parts = [np.flatnonzero(labels == part) for part in range(problem.k)]
    if (labels < 0).any() or any(len(part) == 0 for part in parts):
        yield "no partition", str(labels.tolist())
        return
    size = max(
        oracle.scatter(K, everyone), CANCELS[problem.x.dtype.name] * float(np.abs(K).max()) * problem.n
    )
    expected = {"psi": oracle.psi(K, parts), "ssq_total": oracle.scatter(K, everyone)}
    for key, value in expected.items():
        if abs(report["objective"][key] - value) > problem.close * size:
            yield (
                f"{key} is not what the definition gives",
                f"{report['objective'][key]!r}, by definition {value!r}",
            )
    pairs = [(a, b) for a in range(problem.k) for b in range(a)]
    weights = np.array([len(parts[a]) * len(parts[b]) for a, b in pairs], dtype=np.float64)
    squares = np.array([oracle.mmd_squared(K, parts[a], parts[b]) for a, b in pairs])
    mean = float((weights * squares).sum() / weights.sum())
    if abs(report["mmd"]["squared"] - mean) > problem.close * max(size / problem.n, mean):
        yield "mmd is not what the definition gives", f"{report['mmd']['squared']!r}, by definition {mean!r}"
    between = expected["ssq_total"] - expected["psi"]
    if problem.k == 2 and abs(between - weights[0] / problem.n * squares[0]) > problem.close * size:
        yield "the oracle itself breaks the identity", f"{between} {weights[0] / problem.n * squares[0]}"
    trace = [step["psi"] for step in report["trace"]]
    end = _end_of_search(problem, report)
    if any(value is None for value in trace):
        yield "the trace has a hole", str(trace)
    elif any(after > before + problem.close * size for before, after in pairwise(trace)):
        yield "the trace rises", str(trace)
    elif trace and abs(trace[-1] - end) > problem.close * size:
        yield "the trace does not end at Psi", f"{trace[-1]!r} {end!r}"


def _end_of_search(problem: Problem, report: dict[str, Any]) -> float:
    """The Psi at which the search ended, which is another one where the hardest split was not asked for."""
    found = report["graded"]
    if found is None and problem.aim != "worst":
        found = report["target"]
    return float(report["objective"]["psi"] if found is None else found["best_psi"])


def _wrong_grade(problem: Problem, report: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Where a graded split is not where it says it is on its scale."""
    grade = report["graded"]
    if (grade is not None) != (problem.kind == "graded" or problem.aim == "severity"):
        yield "a grade that nobody asked for, or none", str(grade)
    if grade is None:
        return
    width = max(grade["best_mmd"] - grade["random_mmd"], 0.0)
    near = 1e-6 * grade["random_mmd"]
    missed = any(warning["code"] == "severity_missed" for warning in report["warnings"])
    off = abs(grade["reached"] - grade["asked"])
    if missed != (off > 0.01 * width + near) and abs(off - 0.01 * width) > near:
        yield "a graded split is off, or said to be", str(grade)
    if abs(grade["asked"] - grade["random_mmd"] - grade["severity"] * width) > 1e-12 + near:
        yield "what was asked for is not on the scale", str(grade)
    if grade["reached"] != report["mmd"]["value"]:
        yield "two MMDs of one split", str(grade)


def _reach(problem: Problem, tolerance: Fraction, codes: Labels) -> tuple[Labels, Labels]:
    """Fewest and most validation rows of every cell, for the nearest rounding."""
    h, sizes = problem.holdout, np.bincount(codes)
    low = [oracle.rounded(max(h * (1 - tolerance), Fraction(0)) * int(size)) for size in sizes]
    high = [min(int(size), oracle.rounded(h * (1 + tolerance) * int(size))) for size in sizes]
    return np.array(low), np.array(high)


def _stated(problem: Problem, report: dict[str, Any], key: str) -> list[NDArray[np.int64]]:
    """What the report says of every cell, in our numbering: one table (cells, parts) per family."""
    found = []
    rest = list(report["constraints"]["cells"])
    for codes in problem.families:
        table = np.full((int(codes.max()) + 1, problem.k), -1, dtype=np.int64)
        columns = 1 if not problem.is_parted else problem.k
        for entry in rest[: len(table) * columns]:
            member = np.ones(problem.n, dtype=bool)
            for name, value in entry["cell"].items():
                member &= problem.columns[name].astype(str) == str(value)
            part = 1 if entry["part"] is None else int(str(entry["part"]).split("_")[-1].removeprefix("p"))
            table[codes[member][0], part] = entry[key]
        del rest[: len(table) * columns]
        if not problem.is_parted:
            table[:, 0] = np.bincount(codes) - table[:, 1]
        found.append(table)
    return found


def _wrong_counts(
    problem: Problem, labels: Labels, report: dict[str, Any], labelings: NDArray[np.int8]
) -> Iterator[tuple[str, str]]:
    """Where cells do not have the rows they must have."""
    counts = [_table(codes, labels, problem.k) for codes in problem.families]
    for stated, found in zip(_stated(problem, report, "actual"), counts, strict=True):
        if not np.array_equal(stated, found):
            yield "the report states other counts", f"{stated.tolist()}, found {found.tolist()}"
    if any(len(set(labels[problem.units == unit].tolist())) > 1 for unit in problem.units):
        yield "a unit is torn", str(labels.tolist())
    if ((problem.pinned >= 0) & (problem.pinned != labels)).any():
        yield "a forced row is elsewhere", f"{problem.pinned.tolist()} {labels.tolist()}"
    if problem.kind in ("balanced", "families"):
        yield from _wrong_rounding(problem, counts)
    elif problem.kind in ("parts", "drawn"):
        yield from _wrong_parts(problem, counts[0])
    elif problem.kind == "folds":
        totals = counts[0].sum(axis=0)
        if (np.ptp(counts[0], axis=1) > 1).any() or np.ptp(totals) > 1:
            yield "folds differ by more than one", str(counts[0].tolist())
    else:
        tolerance = problem.tolerance
        if tolerance is None:
            tolerance = Fraction(str(report["constraints"]["tolerance"]["general"]))
            least = _least_tolerance(problem, labelings)
            if abs(tolerance - least) > Fraction(2, 10**6):
                yield "not the smallest tolerance", f"{float(tolerance)}, {float(least)} is enough"
        low, high = _reach(problem, tolerance, problem.families[0])
        if (counts[0][:, 1] < low).any() or (counts[0][:, 1] > high).any():
            yield "a cell is out of bounds", f"{low.tolist()} {high.tolist()} {counts[0][:, 1].tolist()}"


def _table(codes: Labels, labels: Labels, k: int) -> Labels:
    """Rows of every cell in every part: (cells, parts)."""
    cells = int(codes.max()) + 1
    return np.stack([np.bincount(codes[labels == part], minlength=cells) for part in range(k)], axis=1)


def _wrong_rounding(problem: Problem, counts: Sequence[Labels]) -> Iterator[tuple[str, str]]:
    """Where quotas that are rounded together are no rounding, or not that of the largest remainders."""
    total = oracle.rounded(problem.holdout * problem.n)
    for table in counts:
        sizes, found = table.sum(axis=1).tolist(), table[:, 1].tolist()
        shares = [problem.holdout * size for size in sizes]
        pairs = list(zip(found, shares, strict=True))
        if any(abs(count - share) >= 1 for count, share in pairs) or sum(found) != total:
            yield "quotas are no rounding of the shares", f"{found} of {sizes}"
        up = [share - int(share) for count, share in pairs if count > int(share)]
        down = [share - int(share) for count, share in pairs if count <= int(share)]
        if problem.kind == "balanced" and min(up, default=Fraction(1)) < max(down, default=Fraction(0)):
            yield "not the largest remainders", f"{found} of {sizes}"


def _wrong_parts(problem: Problem, table: Labels) -> Iterator[tuple[str, str]]:
    """Where counts or totals of parts are no rounding of their shares."""
    for sizes, found in ((table.sum(axis=1), table), (np.array([problem.n]), table.sum(axis=0)[None, :])):
        for size, line in zip(sizes.tolist(), found.tolist(), strict=True):
            if any(abs(count - share * size) >= 1 for count, share in zip(line, problem.shares, strict=True)):
                yield "a part is no rounding of its share", f"{line} of {size}"


def _whole_units(problem: Problem, labelings: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which labelings tear no unit."""
    first = np.array([int(np.flatnonzero(problem.units == unit)[0]) for unit in problem.units])
    return np.asarray((labelings == labelings[:, first]).all(axis=1))


def _pinned_right(problem: Problem, labelings: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which labelings have every forced row where it was forced."""
    forced = problem.pinned >= 0
    return np.asarray((labelings[:, forced] == problem.pinned[forced]).all(axis=1))


def _two_sides(labelings: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Which labelings leave neither side empty."""
    return np.asarray((labelings.min(axis=1) == 0) & (labelings.max(axis=1) == 1))


def _least_tolerance(problem: Problem, labelings: NDArray[np.int8]) -> Fraction:
    """The smallest tolerance within which some labeling of whole units lies."""
    kept = labelings[_whole_units(problem, labelings) & _two_sides(labelings)]
    counts = oracle.counts_of(kept, problem.families[0], 1)
    sizes = np.bincount(problem.families[0])
    need = [
        [_tolerance_for(problem.holdout, int(size), count) for count in range(int(size) + 1)]
        for size in sizes
    ]
    return min(
        max(need[cell][int(count)] for cell, count in enumerate(line)) for line in np.unique(counts, axis=0)
    )


def _tolerance_for(h: Fraction, size: int, count: int) -> Fraction:
    """The smallest tolerance, to six decimals, that allows a cell so many validation rows."""
    if oracle.rounded(h * size) == count:
        return Fraction(0)
    half = Fraction(1, 2)
    exact = 1 - (count + half) / (h * size) if count < h * size else (count - half) / (h * size) - 1
    steps = -(-exact.numerator * 10**6 // exact.denominator)
    return Fraction(max(0, steps), 10**6)


def _is_feasible_for_sure(problem: Problem, labelings: NDArray[np.int8]) -> bool:
    """Whether some labeling meets the constraints, where the definitions alone decide that."""
    if problem.is_parted:
        return problem.kind == "folds" and problem.n >= problem.k
    if problem.kind in ("balanced", "families"):
        total = oracle.rounded(problem.holdout * problem.n)
        return 0 < total < problem.n
    kept = labelings[
        _whole_units(problem, labelings) & _pinned_right(problem, labelings) & _two_sides(labelings)
    ]
    if problem.tolerance is None:  # where every cell rounds to the same side, another --h is asked for
        low, _ = _reach(problem, Fraction(0), problem.families[0])
        return len(kept) > 0 and 0 < low.sum() < problem.n
    low, high = _reach(problem, problem.tolerance, problem.families[0])
    counts = oracle.counts_of(kept, problem.families[0], 1)
    return bool(((counts >= low) & (counts <= high)).all(axis=1).any())


def _feasible(
    problem: Problem, labels: Labels, report: dict[str, Any], labelings: NDArray[np.int8]
) -> NDArray[np.int8]:
    """The labelings that meet the bounds that the report states, with drawn rows where they are."""
    kept = np.ones(len(labelings), dtype=bool)
    lower, upper = (_stated(problem, report, key) for key in ("lower", "upper"))
    for codes, low, high in zip(problem.families, lower, upper, strict=True):
        for part in range(problem.k) if problem.is_parted else (1,):
            counts = oracle.counts_of(labelings, codes, part)
            kept &= ((counts >= low[:, part]) & (counts <= high[:, part])).all(axis=1)
    kept &= _whole_units(problem, labelings)
    kept &= _pinned_right(problem, labelings) if problem.kind == "pins" else True
    if problem.kind == "drawn":
        kept &= ((labelings == problem.k - 1) == (labels == problem.k - 1)).all(axis=1)
    if problem.kind in AUTO and problem.tolerance is None:
        # The total is kept as near to its share as the smallest tolerance lets it come.
        off = np.abs(labelings.sum(axis=1) - float(problem.holdout) * problem.n)
        kept &= _two_sides(labelings)
        kept &= off <= off[kept].min(initial=np.inf) + 1e-9
    return labelings[kept]


def _compare_with_best(
    problem: Problem,
    K: oracle.Floats,
    labels: Labels,
    report: dict[str, Any],
    feasible: NDArray[np.int8],
    outcome: Outcome,
) -> None:
    """The split is at most as good as the best of all, and counted where it is as good."""
    best = float(oracle.psi_of_all(K, feasible, problem.k).min())
    parts = [np.flatnonzero(labels == part) for part in range(problem.k)]
    size = max(oracle.scatter(K, np.arange(problem.n)), 1e-12)
    reached = oracle.psi(K, parts)
    if report["graded"] is not None:  # the search ended elsewhere
        if reached < best - max(1e-6, problem.close) * size:
            outcome.add("graded: better than the best", f"{reached!r} {best!r}")
        reached = report["graded"]["best_psi"]
    if reached < best - max(1e-6, problem.close) * size:
        outcome.add(f"{problem.kind}: better than the best", f"{reached!r} {best!r}")
    is_large = " beyond enumeration" if problem.n > 12 else ""
    is_large += " in pieces" if problem.engine != "local" else ""
    outcome.tags[f"{problem.kind}{is_large}: compared"] += 1
    is_best = reached <= best + max(
        SAME[problem.x.dtype.name] * size, 1e-13 * float(np.abs(K).max()) * problem.n
    )
    outcome.tags[f"{problem.kind}{is_large}: best"] += int(is_best)
    if not is_best:
        outcome.slow.append(
            (0.0, f"{problem.kind}{is_large}: Psi {reached:.6g}, best {best:.6g}, scatter {size:.6g}")
        )
