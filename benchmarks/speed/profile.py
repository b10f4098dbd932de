"""Where the time of a large Nyström run goes: products, exponentials, passes, selection, reading.

Runs the pipeline in this process on generated rows of the size of Camelyon17, with clocks around its parts,
on one worker, so that seconds add up. `--write` replaces the table in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import harness
from clustersplit_cli.core.assignment.selection import Selection
from clustersplit_cli.core.geometry import factored
from clustersplit_cli.core.geometry import nystrom as factoring
from clustersplit_cli.core.geometry.features import Features
from clustersplit_cli.core.geometry.kernels import Kernel
from clustersplit_cli.core.geometry.nystrom import Centres
from clustersplit_cli.core.search import explore
from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers import load
from clustersplit_cli.options import SplitOptions, check_options
from clustersplit_cli.pipeline.local import engine, split

WORDS = {
    "reading": "reading, checking and hashing the files",
    "product": "landmark matrix: products",
    "exp": "landmark matrix: exponentials",
    "prepare": "centring and scaling features",
    "pass": "passes: the landmark matrix times vectors",
    "selection": "selection: the cheapest rows of every cell",
    "factoring": "factoring the kernel among landmarks",
    "explore": "exploring a sample of the rows on a low-rank kernel",
    "rest": "the rest: polishing, certifying, measuring",
}


class Clocks:
    """Seconds per part; a part within a part counts for itself alone, but not within exploring."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block's time for a part."""
        self._switch()
        self._open.append("explore" if "explore" in self._open else name)
        try:
            yield
        finally:
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def around(self, owner: Any, method: str, name: str) -> None:
        """Count all calls of a method for a part."""
        plain: Callable[..., Any] = getattr(owner, method)

        def timed(*arguments: Any, **named: Any) -> Any:
            with self.part(name):
                return plain(*arguments, **named)

        setattr(owner, method, timed)


def profile(folder: Path, n: int, d: int, q: int) -> dict[str, float]:
    """Seconds per part of one run."""
    path, _, label, _, domain = harness.write_generated(folder, n, d, 2, 4)
    clocks = Clocks()
    clocks.around(Centres, "compare", "product")
    clocks.around(Kernel, "of_products", "exp")
    for method in ("block", "write"):
        clocks.around(Features, method, "prepare")
    for method in ("times", "_summed", "at", "sum_of"):
        clocks.around(factored.FactorGeometry, method, "pass")
    clocks.around(Selection, "choose", "selection")
    clocks.around(factoring, "inverse_root", "factoring")
    for method in ("make_subproblem", "explore", "perturb"):
        clocks.around(explore, method, "explore")
    clocks.around(split, "make_low_rank", "explore")
    with clocks.part("reading"):
        dataset = load(ReadRequest(Path(path), label_file=Path(label), domain_file=Path(domain)))
    options = check_options(SplitOptions(nystrom=str(q), bound="never", threads=1))
    # The bound is left out, as it is by itself at this size.
    with clocks.part("rest"):
        engine.partition(dataset, options)
    return dict(clocks.seconds)


def main() -> None:
    """Print the table, and write it to the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=455_954)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/benchmarks.md")
    options = parser.parse_args()
    with harness.workspace() as folder:
        seconds = profile(folder, options.rows, 512, 2000)
    total = sum(seconds.values())
    lines = [
        f"{options.rows:,} rows of 512 features, 2,000 landmarks, one worker, {total:.0f} s in all, on "
        f"{harness.machine()}.",
        "",
        "| part | seconds | share |",
        "| --- | ---: | ---: |",
    ]
    lines += [
        f"| {words} | {seconds.get(name, 0.0):.1f} | {100 * seconds.get(name, 0.0) / total:.0f} % |"
        for name, words in WORDS.items()
    ]
    print("\n".join(lines))
    if options.write:
        harness.write_table("profile", lines)


if __name__ == "__main__":
    main()
