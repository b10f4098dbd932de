"""The help of a command: plain text, options in groups, readable at 80 columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from clustersplit_cli.errors import UsageError

_VALUE_OF_HELP = re.compile(r"[-+]?[\d.,]+(e[-+]?\d+)?%?|\d+/\d+", re.IGNORECASE)
_WORDS_AS_DEFAULT = re.compile(r"\[default: \((.*)\)\]", re.DOTALL)


class GroupedHelp(TyperCommand):
    """A command whose help lists the options under the panels they were given, in order."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Name the arguments in the usage line as the help below it does."""
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section per group; an option without one is listed last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                sections["Arguments"] = [*sections.get("Arguments", []), (parameter.metavar or "", record[1])]
            else:
                panel = getattr(parameter, "rich_help_panel", None) or "Help"
                # Typer puts defaults that are words in parentheses.
                text = _WORDS_AS_DEFAULT.sub(r"[default: \1]", record[1])
                sections.setdefault(panel, []).append((record[0], text))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def refuse_value_of_help(words: Sequence[str]) -> None:
    """Refuse `-h 0.2`, which would print the help and leave the user without a split.

    Raises
    ------
    UsageError
        If a number follows `-h`.
    """
    options = [*(words[: words.index("--")] if "--" in words else words), ""]
    for word, following in pairwise(options):
        if not word.startswith("-h"):
            continue
        value = word[2:].removeprefix("=") or following
        if _VALUE_OF_HELP.fullmatch(value):
            raise UsageError(
                f"-h shows the help and takes no value, got '{value}'",
                hint=f"the share of validation rows is --h: --h {value}",
            )
