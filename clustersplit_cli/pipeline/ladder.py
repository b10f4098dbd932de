"""A ladder: graded splits at several levels, from one search for every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clustersplit_cli.errors import UsageError
from clustersplit_cli.pipeline.engine import Engine, Found, Surveyed
from clustersplit_cli.pipeline.run import Run, bound_and_baseline, gather, grade
from clustersplit_cli.pipeline.summarize import summarize

LEVELS = "0,0.25,0.5,0.75,1"


def parse_levels(text: str) -> tuple[float, ...]:
    """Read `0,0.5,1`: different severities, in any order.

    >>> parse_levels("1,0")
    (0.0, 1.0)
    """
    hint = f"for example --levels {LEVELS}"
    levels = []
    for piece in text.split(","):
        try:
            level = float(piece)
        except ValueError:
            raise UsageError(f"--levels '{piece.strip()}' is not a number", hint=hint) from None
        if not 0 <= level <= 1:
            raise UsageError(f"--levels must lie between 0 and 1, got {piece.strip()}", hint=hint)
        if level in levels:
            raise UsageError(f"--levels has {level:g} twice", hint=hint)
        levels.append(level)
    return tuple(sorted(levels))


def climb(
    engine: Engine[Surveyed, Found], levels: Sequence[float], config: Mapping[str, Any]
) -> Iterator[tuple[float, Run]]:
    """Search once, and make a split for every level: the very one that `run` makes with that severity."""
    context = engine.prepare(engine.survey())
    best = context.refine(context.explore())
    searched = context.account(best)
    bound, random = bound_and_baseline(context, best)
    for level in levels:
        here = context.at(level)
        found, graded = grade(here, best, random) if here.options.is_graded else (best, None)
        certificate = here.certify(found)
        result = gather(here, found, certificate, bound, random, config, searched, graded)
        yield level, Run(here.written(found), summarize(result, here.watch))
    engine.await_hashes()
