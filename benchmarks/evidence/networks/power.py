"""What the networks can show: the gain that would be detected, from the variance of a pilot.

    python -m benchmarks.evidence.networks.power [--results DIR] [--out FILE]

Reads the first repeat of plain training (ERM), and of it only variances and the oracle's gain, not who gained.
The gain of a strategy in a round is that of its choice over the choice on the random split. Its standard
deviation over evaluation domains holds what differs between domains and what differs between repeats. More
repeats reduce only the second, so the numbers are those at best. Writes JSON with the date and the cost.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.evidence.networks.choices import RESULTS, choose, read
from benchmarks.evidence.networks.pictures import DATASETS
from benchmarks.evidence.networks.strategies import REFERENCE
from clustersplit_cli.evaluation.statistics import Table, collect, minus
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

LEVEL, POWER = 0.05, 0.8
WANTED = 0.25
"""Half of the share of the gap that the paper reports."""
STRATEGIES = ("cluster-linear", "cluster-rbf")
PILOT = "erm"
REPEATS = (1, 2, 4, 8, 16)
SUBSETS = 50


@dataclass(frozen=True)
class Pilot:
    """One dataset and number of settings: what a single round varies by, and what there is to gain.

    Attributes
    ----------
    deviation : standard deviation over domains of the gain of models chosen on and trained on T, in points.
    retrained : the same of settings retrained on all rows.
    gap : what the oracle gains, in points.
    """

    dataset: str
    domains: int
    settings: int
    deviation: float
    retrained: float
    gap: float


def detectable(deviation: float, domains: int, repeats: int) -> float:
    """The smallest mean gain that a two-sided t-test over domains finds with the power asked for.

    >>> round(detectable(1.0, 1000, 1), 4)  # (1.962 + 0.842) / 1000**0.5
    0.0887
    """
    df = domains - 1
    quantiles = stats.t.ppf(1 - LEVEL / 2, df) + stats.t.ppf(POWER, df)
    return float(quantiles * deviation / (domains * repeats) ** 0.5)


def needed(deviation: float, domains: int, gain: float) -> int:
    """How many repeats detect a gain."""
    return int(np.ceil((detectable(deviation, domains, 1) / gain) ** 2)) if gain > 0 else 0


def _spread(runs: list[EvaluationRun], *, retrained: bool) -> tuple[float, float]:
    """Standard deviation of the strategies' gains over domains, and the oracle's mean gain; in points."""

    def tested(run: EvaluationRun) -> float | None:
        return run.refit if retrained else run.test

    base = collect(runs, REFERENCE, tested)
    variances = [
        float(np.var(Table.of(minus(collect(runs, strategy, tested), base)).values[:, 0], ddof=1))
        for strategy in STRATEGIES
    ]
    gap = Table.of(minus(collect(runs, ORACLE, tested), base)).mean
    return 100 * float(np.mean(variances)) ** 0.5, 100 * gap


def pilot(results: Path, dataset: str, settings: int) -> Pilot:
    """Measure a dataset's pilot, as if so many of the settings had been drawn; the mean over such draws."""
    scored = {key: scores for key, scores in read(results, dataset, PILOT).items() if key[1] == 0}
    every = next(iter(scored.values())).test.shape[1]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(SUBSETS if settings < every else 1):
        drawn = sorted(rng.choice(every, settings, replace=False))
        runs = choose({key: scores.subset(drawn) for key, scores in scored.items()})
        found.append((*_spread(runs, retrained=False), _spread(runs, retrained=True)[0]))
    deviation, gap, retrained = np.sqrt(np.mean(np.square(found), axis=0))
    domains = len({domain for domain, _, _ in scored})
    return Pilot(dataset, domains, settings, *(round(float(x), 2) for x in (deviation, retrained, gap)))


def seconds(datasets: tuple[str, ...]) -> dict[str, float]:
    """Processor time of a training by each algorithm, the mean over datasets and two settings."""
    from benchmarks.evidence.networks.run import CELLS, Round

    spent: dict[str, list[float]] = {algorithm: [] for algorithm in CELLS}
    for dataset in datasets:
        round_ = Round(dataset, DATASETS[dataset](), 0, 0)
        members = round_.splits(REFERENCE, "joint")[0]
        for algorithm, found in spent.items():
            for params in round_.settings(algorithm)[:2]:
                start = time.process_time()
                round_.train(algorithm, members, params, 0)
                found.append(time.process_time() - start)
    return {algorithm: round(float(np.mean(found)), 2) for algorithm, found in spent.items()}


def main() -> int:
    """Measure the pilot, and write what it says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=RESULTS / "power.json")
    given = parser.parse_args()
    datasets = tuple(name for name in DATASETS if (given.results / f"{name}-{PILOT}.jsonl").exists())
    pilots = [pilot(given.results, name, settings) for name in datasets for settings in (4, 8)]
    largest = [found for found in pilots if found.settings == max(p.settings for p in pilots)]
    together = {
        "domains": sum(found.domains for found in largest),
        "deviation": round(float(np.mean([found.deviation**2 for found in largest])) ** 0.5, 2),
        "gap": round(float(np.mean([found.gap for found in largest])), 2),
    }
    rows = [
        {
            "dataset": name,
            "domains": domains,
            "gap": gap,
            "wanted": round(WANTED * gap, 2),
            "detectable": {
                str(repeats): round(detectable(deviation, domains, repeats), 2) for repeats in REPEATS
            },
            "repeats_needed": needed(deviation, domains, WANTED * gap),
        }
        for name, domains, gap, deviation in [
            *((found.dataset, found.domains, found.gap, found.deviation) for found in largest),
            ("all", together["domains"], together["gap"], together["deviation"]),
        ]
    ]
    written = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "level": LEVEL,
        "power": POWER,
        "share_of_gap": WANTED,
        "pilot": [asdict(found) for found in pilots],
        "rows": rows,
        "seconds_per_training": seconds(datasets),
    }
    given.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(given.out.read_text("utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
