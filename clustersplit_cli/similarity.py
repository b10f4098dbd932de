"""What may be given of all pairs of rows in place of features, and how similar rows count as the same."""

from __future__ import annotations

from dataclasses import dataclass

from clustersplit_cli.errors import UsageError

SIMILARITIES, DISTANCES = "similarities", "distances"
PRECOMPUTED = "precomputed"
"""The kernel whose values are given in place of features."""
EXACT_DUPLICATES, NEAR_DUPLICATES = "exact-duplicates", "near-duplicates"
"""Stand for a column: rows with the same features, or with similar ones, stay together."""
BY_KERNEL = "kernel:"


def pairs_of(kernel: str | None, *, distances: bool) -> str | None:
    """What is given of all pairs of rows, by the options; None where features are given."""
    return DISTANCES if distances else SIMILARITIES if kernel == PRECOMPUTED else None


@dataclass(frozen=True)
class Nearness:
    """How similar rows have to be to count as the same.

    Attributes
    ----------
    least : similarity, above 0 and at most 1.
    by_kernel : whether it is the kernel's, of which a row has 1 with itself; else the cosine of the rows.
    """

    least: float
    by_kernel: bool = False

    @classmethod
    def of_text(cls, text: str, option: str) -> Nearness:
        """Read a number, or one after `kernel:`.

        >>> Nearness.of_text("kernel:0.95", "--near-duplicates")
        Nearness(least=0.95, by_kernel=True)
        """
        number = text.removeprefix(BY_KERNEL)
        try:
            least = float(number)
        except ValueError:
            least = float("nan")
        if not 0 < least <= 1:
            raise UsageError(
                f"{option} '{text}' is no similarity above 0 and up to 1", hint=f"for example {option} 0.95"
            )
        return cls(least, text != number)

    @classmethod
    def of_together(cls, together: str | None) -> Nearness | None:
        """Read --keep-together; None if it is about anything else."""
        name, separator, text = (together or "").partition("=")
        if name != NEAR_DUPLICATES:
            return None
        if not separator:
            raise UsageError(
                f"--keep-together {name} needs a similarity", hint=f"for example --keep-together {name}=0.95"
            )
        try:
            return cls.of_text(text, name)
        except UsageError:
            raise UsageError(
                f"--keep-together '{together}' names no similarity above 0 and up to 1",
                hint=f"for example --keep-together {name}=0.95",
            ) from None

    @property
    def name(self) -> str:
        """What the similarity is called."""
        return "kernel similarity" if self.by_kernel else "cosine similarity"


def is_of_features(together: str | None) -> bool:
    """Whether rows are kept together for their features, and not for the values of a column."""
    return together == EXACT_DUPLICATES or Nearness.of_together(together) is not None
