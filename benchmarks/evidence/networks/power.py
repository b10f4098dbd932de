"""What the networks can show: the gain that would be detected, from the variance of a pilot.

    python -m benchmarks.evidence.networks.power [--results DIR] [--out FILE] [--time DATASET...]

Reads the first repeat of what is finished: variances and the oracle's gain, not who gained.
The gain of a strategy in a round is that of its choice over the choice on the random split. Its standard
deviation over evaluation domains holds what differs between domains and what differs between repeats. More
repeats reduce only the second, so the numbers are those at best. Adds to FILE, with the date and the cost.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.evidence.networks.choices import RESULTS, choose, read
from benchmarks.evidence.networks.pictures import DATASETS
from benchmarks.evidence.networks.strategies import CELLS, EVERYTHING, REFERENCE
from clustersplit_cli.evaluation.statistics import Table, collect, minus
from clustersplit_cli.reports.evaluation.summary import ORACLE, EvaluationRun

LEVEL, POWER = 0.05, 0.8
WANTED = 0.25
"""Half of the share of the gap that the paper reports."""
STRATEGIES = ("cluster-linear", "cluster-rbf")
NEEDED = (*STRATEGIES, REFERENCE, EVERYTHING)
REPEATS = (1, 2, 4, 8, 16)
SUBSETS = 50
SETTINGS = (4, 8)


@dataclass(frozen=True)
class Pilot:
    """One dataset and algorithm: what a single round varies by, and what there is to gain.

    Attributes
    ----------
    deviation : standard deviation over domains of the gain of models chosen on and trained on T, in points.
    retrained : the same of settings retrained on all rows.
    gap : what the oracle gains, in points.
    """

    dataset: str
    algorithm: str
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


def pilot(results: Path, dataset: str, algorithm: str, settings: int) -> Pilot | None:
    """Measure a first repeat as if so many of the settings had been drawn, the mean over such draws.

    None where strategies or domains are missing.
    """
    scored = {key: scores for key, scores in read(results, dataset, algorithm).items() if key[1] == 0}
    names = DATASETS[dataset]().names
    if not {(name, 0, strategy) for name in names for strategy in NEEDED} <= set(scored):
        return None
    every = next(iter(scored.values())).test.shape[1]
    rng = np.random.default_rng(0)
    found = []
    for _ in range(SUBSETS if settings < every else 1):
        drawn = sorted(rng.choice(every, settings, replace=False))
        runs = choose({key: scores.subset(drawn) for key, scores in scored.items()})
        found.append((*_spread(runs, retrained=False), _spread(runs, retrained=True)[0]))
    deviation, gap, retrained = np.sqrt(np.mean(np.square(found), axis=0))
    return Pilot(
        dataset, algorithm, len(names), settings, *(round(float(x), 2) for x in (deviation, retrained, gap))
    )


def row(name: str, domains: int, gap: float, deviation: float) -> dict[str, Any]:
    """What could be detected, by repeats, and how many repeats detect the wanted share of the gap."""
    wanted = WANTED * gap
    return {
        "what": name,
        "domains": domains,
        "gap": round(gap, 2),
        "wanted": round(wanted, 2),
        "detectable": {str(count): round(detectable(deviation, domains, count), 2) for count in REPEATS},
        "repeats_needed": needed(deviation, domains, wanted),
    }


def seconds(dataset: str) -> dict[str, float]:
    """Processor time of one training by each algorithm, with the first setting of the first round."""
    import torch

    from benchmarks.evidence.networks.run import Round

    torch.set_num_threads(1)
    round_ = Round(dataset, DATASETS[dataset](), 0, 0)
    members = round_.splits(REFERENCE, "joint")[0]
    spent = {}
    for algorithm in CELLS:
        params = round_.settings(algorithm)[0]
        start = time.process_time()
        round_.train(algorithm, members, params, 0)
        spent[algorithm] = round(time.process_time() - start, 2)
    return spent


def main() -> int:
    """Measure the pilot, and write what it says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--time", nargs="*", default=[], choices=list(DATASETS), help="also measure the cost")
    parser.add_argument("--out", type=Path, default=RESULTS / "power.json")
    given = parser.parse_args()
    found = [
        pilot(given.results, dataset, algorithm, settings)
        for dataset in DATASETS
        for algorithm in CELLS
        for settings in SETTINGS
    ]
    pilots = [each for each in found if each is not None]
    largest = [each for each in pilots if each.settings == max(SETTINGS)]
    rows = [
        row(f"{each.dataset}, {each.algorithm}", each.domains, each.gap, each.deviation) for each in largest
    ]
    deviation = float(np.mean([each.deviation**2 for each in largest])) ** 0.5
    gap = float(np.mean([each.gap for each in largest]))
    rows.append(row("three such datasets", 3 * largest[0].domains, gap, deviation))
    written = {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "level": LEVEL,
        "power": POWER,
        "share_of_gap": WANTED,
        "pilot": [asdict(each) for each in pilots],
        "rows": rows,
        "seconds_per_training": {dataset: seconds(dataset) for dataset in given.time},
    }
    print(json.dumps(written, indent=1, ensure_ascii=False))
    earlier = json.loads(given.out.read_text("utf-8")) if given.out.exists() else []
    text = json.dumps([*earlier, written], indent=1, ensure_ascii=False)
    given.out.write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
