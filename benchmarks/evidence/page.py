"""What docs/evidence.md and the README say of the evidence: the table, the sentences, the figure.

    python -m benchmarks.evidence.page [--write]

Prints them, or puts them and `results/pooled.json` in their places.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.evidence.networks.choices import RESULTS as NETWORKS
from benchmarks.evidence.pool import Interval, Pool, Pooled, Study, all_studies, discrepancy

ROOT = Path(__file__).resolve().parents[2]
POOLED = Path(__file__).resolve().parent / "results" / "pooled.json"
PAGE, README = ROOT / "docs" / "evidence.md", ROOT / "README.md"
FIGURE = ROOT / "docs" / "images" / "evidence.svg"
STRATEGIES = {
    "leave-one-domain-out": "leave one domain out",
    "mix-up": "mix-up",
    "cluster-linear": "cluster, linear",
    "cluster-rbf": "cluster, rbf",
    "cluster-rbf-1": "cluster, rbf, γ = 1",
    "random:worst": "random, by the worst domain",
    "random:worst-gap": "random, by worst and gap",
    "cluster-rbf:worst": "cluster, rbf, by the worst domain",
    "cluster-rbf:worst-gap": "cluster, rbf, by worst and gap",
    "cluster-linear:raw": "cluster, linear, raw features",
    "cluster-linear:label": "cluster, linear, probes with label cells",
    "cluster-rbf:label": "cluster, rbf, probes with label cells",
    "weighted": "random, weighted by the target",
    "target-lookalike": "rows that look like the target",
    "target-nearest": "rows distributed like the target",
    "kfold-random": "folds, random",
    "kfold-cluster-rbf": "folds, cluster, rbf",
}
DATA_WORDS = {
    "gas_drift": "gas sensors",
    "spoken": "spoken digits",
    "pacs_effnetlite0": "PACS images",
    "heart_hospitals": "heart disease",
    "mnist_usps": "MNIST and USPS",
    "amazon_reviews_svd128": "reviews",
    "elec2": "electricity",
    "rotated": "rotated digits",
    "mixed": "digits of several kinds",
}
MODEL_WORDS = {
    "probes": "probes, 20 settings",
    "graded": "probes, 12 settings",
    "dann": "DANN",
    "coral": "CORAL",
    "erm": "ERM",
}
KERNELS = {"cluster-rbf": "rbf", "cluster-linear": "linear"}
COLOURS = {"cluster-rbf": "#c2410c", "cluster-linear": "#1d4ed8"}


def span(found: Interval | None, digits: int = 1) -> str:
    """A number and its interval.

    >>> span(Interval(-1.0, -2.0, 0.04))
    '-1.0 (-2.0 to +0.0)'
    """
    if found is None:
        return ""
    mean, low, high = (
        f"{round(value, digits) + 0.0:+.{digits}f}" for value in (found.mean, found.low, found.high)
    )
    return f"{mean} ({low} to {high})"


def apart(pool: Pool) -> dict[str, Pool]:
    """The studies of whole networks, and those of frozen features."""
    return {
        "whole networks": Pool([study for study in pool.studies if study.whole]),
        "frozen features": Pool([study for study in pool.studies if not study.whole]),
    }


def by_cells(pool: Pool) -> dict[str, Pool]:
    """The studies with joint cells, the default, and those with label cells, CORAL's."""
    return {
        f"{cells} cells": Pool([study for study in pool.studies if study.cells == cells])
        for cells in ("joint", "label")
    }


def table(pool: Pool) -> list[str]:
    """Every strategy over all studies that had it; the kernels also for networks and frozen features."""
    lines = [
        "| choice on | studies (datasets) | trainings | gain | share of the gap, % | best on its T "
        "| gain, retrained | rank correlation | optimism |",
        f"|{' --- |' * 9}",
    ]
    for strategy, words in STRATEGIES.items():
        parts = [(words, pool)]
        if strategy in KERNELS:
            divided = {**by_cells(pool), **apart(pool)}
            parts += [(f"- {words}: {kind}", part) for kind, part in divided.items()]
        for name, part in parts:
            if part.having(strategy, "gain", "gap_gain"):
                lines.append(_line(name, part.pooled(strategy)))
    return lines


def _line(name: str, pooled: Pooled) -> str:
    cells = [
        name,
        f"{pooled.studies} ({pooled.datasets})",
        f"{pooled.trainings:,}",
        span(pooled.gain),
        span(pooled.share, 0),
        span(pooled.best),
        span(pooled.retrained),
        span(pooled.rank_correlation, 2),
        span(pooled.optimism),
    ]
    return f"| {' | '.join(cells)} |"


def words_of(study: Study) -> str:
    """A study's name for readers."""
    head = "" if study.models in ("probes", "graded") else " networks" if study.whole else " heads"
    return f"{DATA_WORDS[study.dataset]}, {MODEL_WORDS[study.models]}{head}"


def verdict(found: Interval) -> str:
    """What an interval allows to be said, with the digits that are shown."""
    if round(found.low, 1) > 0:
        return "a gain"
    return "a loss" if round(found.high, 1) < 0 else "no clear difference"


def readme_rows(pool: Pool) -> list[str]:
    """One row per dataset, and one for everything; of joint cells, the default."""
    label, pool = by_cells(pool)["label cells"], by_cells(pool)["joint cells"]
    lines = [
        "| data | models | trainings | gain of `--kernel rbf` | gain of `--kernel linear` "
        "| gain of a perfect choice |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for dataset, words in DATA_WORDS.items():
        studies = [study for study in pool.studies if study.dataset == dataset]
        if studies:
            kinds = [kind for kind, part in apart(Pool(studies)).items() if part.studies]
            named = f"{words}, {studies[0].domains} domains"
            lines.append(f"| {named} | {', '.join(kinds)} | {_gains(Pool(studies))} |")
    lines.append(f"| all {len(pool.studies)} studies | | {_gains(pool)} |")
    found = pool.pooled("cluster-rbf")
    text = [
        f"Retrained on all development rows, the setting chosen with `--kernel rbf` changes accuracy by "
        f"{span(found.retrained)} points.",
        f"With label-only cells, which the paper has with CORAL, the gain is "
        f"{span(label.pooled('cluster-rbf').gain)} points, because the training set no longer covers the "
        f"data, and "
        f"retrained {span(label.pooled('cluster-rbf').retrained)}.",
        _promise(pool.interval("random", "optimism_itself"), found.optimism),
    ]
    return [*lines, "", " ".join(line for line in text if line)]


def _promise(random: Interval | None, less: Interval | None) -> str:
    """Whether the validation accuracy on a cluster split promises less."""
    if less is None or less.high >= 0:
        return ""
    turned = Interval(-less.mean, -less.high, -less.low)
    return (
        "What the split does change is what validation promises: on a random validation set the chosen "
        "model looked "
        f"{span(random)} points better than it was on the unseen domain, and on the cluster split "
        f"{span(turned).replace('+', '')} points less than that."
    )


def _gains(pool: Pool) -> str:
    """Trainings, gains, and what there is to gain."""
    total = sum(study.trainings for study in pool.studies)
    both = [
        span(pool.pooled(strategy).gain) if pool.having(strategy, "gain", "gap_gain") else ""
        for strategy in KERNELS
    ]
    gap = pool.interval("cluster-rbf", "gap_gain")
    return f"{total:,} | {' | '.join(both)} | {'' if gap is None else f'{gap.mean:+.1f}'}"


def figure(pool: Pool) -> str:
    """Gains by study as SVG: means with two standard errors, and the pooled numbers with their intervals."""
    studies = sorted(pool.studies, key=lambda study: (not study.whole, list(DATA_WORDS).index(study.dataset)))
    rows = [(words_of(study), study) for study in studies]
    width, left, top, step = 860, 250, 64, 30
    height = top + step * (len(rows) + 3) + 60
    low, high = -25.0, 15.0

    def x(value: float) -> float:
        return round(left + (width - left - 30) * (min(max(value, low), high) - low) / (high - low), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="13">',
        "<title>Gain of choosing on a cluster split, by study</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-weight="bold">Gain over choosing on a random split, points of '
        f"accuracy "
        "on the unseen domain</text>",
    ]
    for place, (strategy, kernel) in enumerate(KERNELS.items()):
        at = left + 170 * place
        parts += [
            f'<circle cx="{at + 6}" cy="40" r="4.5" fill="{COLOURS[strategy]}"/>',
            f'<text x="{at + 16}" y="44">cluster split, {kernel}</text>',
        ]
    bottom = height - 44
    for value in range(int(low), int(high) + 1, 5):
        colour = "#444" if value == 0 else "#ddd"
        shown = f"{value:+d}" if value else "0"
        parts += [
            f'<line x1="{x(value)}" y1="{top - 8}" x2="{x(value)}" y2="{bottom}" stroke="{colour}"/>',
            f'<text x="{x(value)}" y="{bottom + 18}" text-anchor="middle">{shown}</text>',
        ]
    parts.append(
        f'<text x="{left}" y="{height - 8}" fill="#555">Means with two standard errors over domains; the '
        f"last "
        "rows with 95 % intervals.</text>"
    )
    for row, (words, study) in enumerate(rows):
        y = top + step * row + 12
        parts.append(f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(words)}</text>')
        for shift, strategy in zip((-5, 5), KERNELS, strict=True):
            if strategy not in study.numbers:
                continue
            found = study.numbers[strategy]["gain"]
            ends = (found.mean - 2 * (found.se or 0), found.mean + 2 * (found.se or 0))
            parts += _mark(x, found.mean, ends, y + shift, COLOURS[strategy])
    y = top + step * len(rows) + 22
    parts.append(f'<line x1="20" y1="{y - 16}" x2="{width - 30}" y2="{y - 16}" stroke="#444"/>')
    for row, (name, part) in enumerate(by_cells(pool).items()):
        at = y + step * row
        parts.append(
            f'<text x="{left - 12}" y="{at + 8}" text-anchor="end" font-weight="bold">all, {name}</text>'
        )
        for shift, strategy in zip((-2, 10), KERNELS, strict=True):
            found = part.pooled(strategy).gain
            parts += _mark(x, found.mean, (found.low, found.high), at + shift, COLOURS[strategy], thick=True)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _mark(
    x: Callable[[float], float],
    mean: float,
    ends: tuple[float, float],
    y: int,
    colour: str,
    *,
    thick: bool = False,
) -> list[str]:
    low, high = (x(end) for end in ends)
    width = 3 if thick else 1.5
    line = f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="{width}"/>'
    return [line, f'<circle cx="{x(mean)}" cy="{y}" r="{5.5 if thick else 4}" fill="{colour}"/>']


def conclusion(pool: Pool) -> list[str]:
    """Five sentences."""
    both = {kernel: pool.pooled(strategy) for strategy, kernel in KERNELS.items()}
    cells = {
        name: {kernel: part.pooled(strategy) for strategy, kernel in KERNELS.items()}
        for name, part in by_cells(pool).items()
    }
    joint, label = cells["joint cells"], cells["label cells"]
    networks = apart(pool)["whole networks"]
    total = sum(study.trainings for study in pool.studies)
    datasets = len({study.dataset for study in pool.studies})
    count = f"{len(pool.studies)} studies on {datasets} datasets, {total:,} trainings"
    lines = [
        f"**The choice.** Over {count}, choosing on a cluster split instead of a random one changed the "
        f"accuracy on "
        f"the unseen domain by {_both(joint, lambda found: span(found.gain))} points with joint cells, "
        f"the default "
        f"(95 % intervals in brackets): {_both(joint, lambda found: verdict(found.gain))}; and by "
        f"{_both(label, lambda found: span(found.gain))} points with label cells, where T no longer "
        f"covers the data: "
        f"{_both(label, lambda found: verdict(found.gain))}.",
        "**Retraining** the chosen setting on all development rows takes the price of the changed T away: "
        f"the changes are then {_both(both, lambda found: span(found.retrained))} points.",
        "**Ranking.** The rank correlation of validation and test accuracy over settings differs from "
        "that on a "
        f"random split by {_both(both, lambda found: span(found.rank_correlation, 2))}.",
    ]
    if networks.studies:
        own = {kernel: networks.pooled(strategy) for strategy, kernel in KERNELS.items()}
        gap = networks.interval("cluster-rbf", "gap_gain")
        lines[1:1] = [
            "**Whole networks** and features that were fine-tuned on the development rows, as in the "
            "paper (so far "
            f"{'; '.join(words_of(study) for study in networks.studies)}): the changes are "
            f"{_both(own, lambda found: span(found.gain))} points, or "
            f"{_both(own, lambda found: span(found.share, 0))} % of a gap of {span(gap)} points; the "
            f"paper reports "
            f"46.9 % (rbf) and 55.2 % (linear), and {_ruled_out(networks, own)}.",
        ]
    random = pool.interval("random", "optimism_itself")
    lines.append(
        f"**Honesty.** On a random validation set the chosen model looked {span(random)} points better "
        f"than it is "
        "on the unseen domain; on a cluster split this error differs by "
        f"{_both(both, lambda found: span(found.optimism))} points, where it was recorded."
    )
    return [f"{place}. {line}" for place, line in enumerate(lines, 1)]


def _share(found: Pooled) -> str:
    return "an unknown share" if found.share is None else f"{span(found.share, 0)} %"


def _both(found: dict[str, Pooled], what: Callable[[Pooled], str]) -> str:
    words = {kernel: what(pooled) for kernel, pooled in found.items()}
    if len(set(words.values())) == 1:
        return next(iter(words.values()))
    return " and ".join(
        f"{word} ({kernel})" if "(" not in word else f"{kernel} {word}" for kernel, word in words.items()
    )


TRAININGS = 6 * 4 * 8
"""Of a repeat: domains, training sets, settings."""
PAPER, ENOUGH = ("dann", "coral"), 2
HALF, WHOLE = 25.0, 46.9
"""Percent of the gap: about half of what the paper reports, and the smaller of its two numbers."""


def _ruled_out(networks: Pool, found: dict[str, Pooled]) -> str:
    """What the upper ends of the intervals exclude, if its algorithms ran on two datasets or more."""
    own = {study.dataset for study in networks.studies if study.models in PAPER}
    if len(own) < ENOUGH:
        return "these runs are too few to say anything of that"
    return f"on these datasets the runs {_both(found, _excluded)}"


def _excluded(pooled: Pooled) -> str:
    high = WHOLE if pooled.share is None else pooled.share.high
    if high < HALF:
        return "rule out even half of that"
    return "rule that out, but not half of it" if high < WHOLE else "cannot rule that out"


def power_lines(path: Path = NETWORKS / "power.json") -> list[str]:
    """What the runs of the networks could detect: the first statement, and the last."""
    statements = json.loads(path.read_text("utf-8"))
    lines = [
        "The gain in points that a two-sided test at 5 % over domains finds with 80 % power. A script "
        "states it from "
        "standard deviations of the first repeat alone: the first time from the pilot alone, as the next "
        "study began.",
    ]
    for stated in [statements[0], *statements[1:][-1:]]:
        counts = list(stated["rows"][0]["detectable"])
        repeats = [f"{count} repeat{'' if count == '1' else 's'}" for count in counts]
        lines += [
            "",
            f"| stated on {stated['date']} | domains | gap | {100 * stated['share_of_gap']:.0f} % of it | "
            f"{' | '.join(repeats)} | repeats needed |",
            f"|{' --- |' * (len(counts) + 5)}",
        ]
        for row in stated["rows"]:
            numbers = " | ".join(f"{row['detectable'][count]:.1f}" for count in counts)
            lines.append(
                f"| {row['what']} | {row['domains']} | {row['gap']:.1f} | {row['wanted']:.1f} | {numbers} "
                f"| {row['repeats_needed']} |"
            )
    spent = [time for times in statements[0]["seconds_per_training"].values() for time in times.values()]
    hours = sum(spent) / len(spent) * TRAININGS / 3600
    needed = statements[-1]["rows"][-1]["repeats_needed"]
    return [
        *lines,
        "",
        f"A repeat of one dataset and algorithm is {TRAININGS} trainings of {min(spent)} to {max(spent)} "
        f"seconds "
        f"of one core, on average {60 * hours:.0f} minutes. Half of the paper's effect would take "
        f"{needed} repeats "
        f"of three datasets, {3 * needed * TRAININGS:,} trainings or {3 * needed * hours:.0f} hours of "
        f"one core, "
        "for one algorithm: what is there so far could only show a far larger one.",
    ]


def discrepancy_lines() -> list[str]:
    """Whether networks whose split has the larger MMD do better."""
    found = discrepancy()
    if found is None:
        return []
    return [
        f"Of whole networks, MMD(T,V) and the accuracy on the unseen domain of the chosen model have a "
        f"rank correlation "
        f"of {found.rho:+.2f} over {found.n} choices, each less the mean of its round.",
    ]


def put(text: str, mark: str, lines: list[str]) -> str:
    """Put lines between the two comments of a mark."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return before + begin + "\n\n" + "\n".join(lines) + "\n\n" + end + after


def page_of(text: str, pool: Pool) -> str:
    """The page with its generated parts."""
    for mark, lines in (
        ("conclusion", conclusion(pool)),
        ("table", [*table(pool), "", *discrepancy_lines()]),
        ("power", power_lines()),
    ):
        text = put(text, mark, lines)
    return text


def readme_of(text: str, pool: Pool) -> str:
    """The README with its table."""
    return put(text, "gains", readme_rows(pool))


def results_of(pool: Pool) -> dict[str, Any]:
    """Everything pooled, for `results/pooled.json`."""
    return {
        "studies": [
            {
                "dataset": study.dataset,
                "models": study.models,
                "whole_networks": study.whole,
                "domains": study.domains,
                "repeats": study.repeats,
                "trainings": study.trainings,
                "strategies": {
                    strategy: {
                        name: [round(found.mean, 3), None if found.se is None else round(found.se, 3)]
                        for name, found in numbers.items()
                    }
                    for strategy, numbers in study.numbers.items()
                },
            }
            for study in pool.studies
        ],
        "pooled": {
            kind: [asdict(part.pooled(name)) for name in STRATEGIES if part.having(name, "gain", "gap_gain")]
            for kind, part in {"all": pool, **apart(pool)}.items()
        },
    }


def main() -> int:
    """Print, or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    pool = Pool(all_studies())
    if given.write:
        POOLED.write_text(json.dumps(results_of(pool), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        FIGURE.write_text(figure(pool), encoding="utf-8")
        PAGE.write_text(page_of(PAGE.read_text("utf-8"), pool), encoding="utf-8")
        README.write_text(readme_of(README.read_text("utf-8"), pool), encoding="utf-8")
    else:
        print("\n".join([*conclusion(pool), "", *table(pool), "", *readme_rows(pool)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
