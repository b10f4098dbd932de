"""How the row groups of a dataset are dealt out to shards."""

from __future__ import annotations

from dataclasses import replace

from clustersplit_cli.data.row_groups import Layout, RowGroup
from clustersplit_cli.engines.shard import Portion


def portions(layout: Layout, count: int) -> list[Portion]:
    """Cut the dataset into at most `count` portions of neighbouring row groups, about equal in rows."""
    cuts: list[list[RowGroup]] = [[]]
    share, done = layout.n_rows / max(1, min(count, len(layout.groups))), 0
    for group in layout.groups:
        if cuts[-1] and done + group.n_rows / 2 > share * len(cuts):
            cuts.append([])
        cuts[-1].append(group)
        done += group.n_rows
    return [Portion(number, layout, tuple(groups)) for number, groups in enumerate(cuts)]


def without_others(portion: Portion) -> Portion:
    """The same portion with nothing of the dataset but its own row groups, to be sent elsewhere."""
    return replace(portion, layout=replace(portion.layout, groups=(), stamps=()))
