"""What to make of it, in words, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

from clustersplit_cli.reports.evaluation_summary import ORACLE, Estimate, StrategyScore

ROOM = 0.01
"""Accuracy between random and oracle below which there is nothing to gain."""
LEVEL = 0.05


def finding(gain: Estimate | None, p_value: float | None) -> str:
    """Whether a difference to the random reference can be told from chance."""
    if gain is None or p_value is None or p_value >= LEVEL or gain.mean == 0:
        return "unclear"
    return "gains" if gain.mean > 0 else "loses"


def verdict(scores: Sequence[StrategyScore], room: Estimate, reference: str) -> tuple[str, ...]:
    """Say what the numbers allow to be said: first whether anything could be gained, then by whom."""
    lines = []
    no_room = room.mean < ROOM
    if no_room:
        lines.append(
            f"no room for improvement here: {reference} is within {points(room.mean)} points of the oracle"
        )
    rivals = [score for score in scores if score.strategy not in (reference, ORACLE)]
    clusters = [score for score in rivals if "cluster" in score.strategy]
    for score in clusters:
        line = _line(score, no_room=no_room)
        if line is not None:
            lines.append(line)
    if clusters and not any(score.finding in ("gains", "loses") for score in clusters):
        lines.append(f"no cluster split can be told from {reference} here: {_listed(clusters)}")
    others = [score for score in rivals if score not in clusters and score.finding == "gains"]
    if others and not no_room:
        best = max(others, key=lambda score: score.gain.mean if score.gain else 0.0)
        lines.append(f"{best.strategy} does better than {reference} too: {_gain(best)} points")
    return tuple(lines)


def _line(score: StrategyScore, *, no_room: bool) -> str | None:
    if score.finding == "loses" and score.gain is not None:
        lost = Estimate(-score.gain.mean, score.gain.se)
        return f"do not use {score.strategy} here: it loses {_points(lost)} points"
    if score.finding == "gains" and not no_room:
        if score.gap_closed is None:
            return f"{score.strategy} gains {_gain(score)} points"
        return f"{score.strategy} closes {_percent(score.gap_closed)} of the gap to the oracle"
    return None


def _listed(scores: Sequence[StrategyScore]) -> str:
    return ", ".join(f"{score.strategy} {_gain(score)}" for score in scores) + " points"


def _gain(score: StrategyScore) -> str:
    return "undefined" if score.gain is None else _points(score.gain, signed=True)


def _points(found: Estimate, *, signed: bool = False) -> str:
    # Rounded first, and zero added: nothing is called -0.0.
    mean = f"{round(100 * found.mean, 1) + 0.0:+.1f}" if signed else points(found.mean)
    return mean if found.se is None else f"{mean} ± {points(found.se)}"


def _percent(found: Estimate) -> str:
    return f"{found.mean:.0f} %" if found.se is None else f"{found.mean:.0f} ± {found.se:.0f} %"


def points(share: float) -> str:
    """A share of 1 in percentage points."""
    return f"{100 * share:.1f}"
