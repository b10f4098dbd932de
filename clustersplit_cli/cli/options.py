"""Typer's side of the options: what makes parameters of a command of them, and what reads them together."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import CheckedOptions, Option, SplitOptions, check_option, check_options
from clustersplit_cli.similarity import Nearness

Body = Callable[[typer.Context], None]
_TYPES: dict[str, Any] = {
    "text": str,
    "number": str,
    "integer": int,
    "seconds": float,
    "path": Path,
    "flag": bool,
    "texts": list[str],
    "numbers": list[str],
}


def with_parameters(
    body: Body, arguments: Mapping[str, Any], options: Collection[Option]
) -> Callable[..., None]:
    """Give a function of a context the parameters that Typer makes a command of."""

    def command(context: typer.Context, **given: Any) -> None:
        for option in options:
            if given[option.name] is not None:
                check_option(option, given[option.name])
        body(context)

    types = {
        "context": typer.Context,
        **arguments,
        **{option.name: _annotated(option) for option in options},
    }
    defaults = {option.name: option.default for option in options}
    defaults |= {name: None for name, kind in arguments.items() if type(None) in get_args(get_args(kind)[0])}
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(name, place, annotation=kind, default=defaults.get(name, inspect.Parameter.empty))
        for name, kind in types.items()
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = types
    return command


def _annotated(option: Option) -> Any:
    """The type of an option with what Typer has to know of it."""
    taken = _TYPES[option.kind]
    example = option.default if option.example is None else option.example
    made = typer.Option(
        *(option.flags or (option.flag,)),
        rich_help_panel=option.panel,
        metavar=option.metavar,
        autocompletion=_completion(option),
        parser=integer(option.flag, example) if option.kind == "integer" else None,
        help=option.help,
        show_default=option.default_in_words or True,
    )
    return Annotated[taken if option.default is not None else taken | None, made]


def _completion(option: Option) -> Callable[..., list[str]] | None:
    """What the shell completes: the option's words, or the columns of the files named so far."""
    words = list(option.words)
    if words:
        return lambda: words
    if option.metavar not in ("COLUMN", "COLUMNS", "COLUMN=VALUE", "GLOB"):
        return None

    def columns(context: typer.Context, incomplete: str) -> list[str]:
        from clustersplit_cli.data.readers import column_names

        # While its last option has no value, a line is not parsed to the end: arguments are left over.
        files = [*map(Path, context.args), context.params.get("metadata")]
        names = column_names([file for file in files if file is not None])
        before, comma, last = incomplete.rpartition(",")
        end = "=" if option.metavar == "COLUMN=VALUE" else ""
        return [f"{before}{comma}{name}{end}" for name in names if name.startswith(last)]

    return columns


def integer(flag: str, example: int | None) -> Callable[[str | int], int]:
    """A parser that names the option and the value; Typer's own words name neither well."""

    def parse(value: str | int) -> int:
        try:
            return int(value)
        except ValueError:
            digits, most = str(value).strip().lstrip("+-"), sys.get_int_max_str_digits()
            is_long = digits.isdecimal() and len(digits) > most
            wrong = (
                f"has {len(digits)} digits, more than the {most} that are read"
                if is_long
                else "is not an integer"
            )
            raise UsageError(f"{flag} '{value}' {wrong}", hint=f"for example {flag} {example}") from None

    return parse


def features_path(value: str) -> Path:
    """An empty word is most often a shell variable that is not set, and not the working directory."""
    if not value:
        raise UsageError("FEATURES is empty", hint="name a file, or . for the working directory")
    return Path(value)


def was_said(context: typer.Context, name: str) -> bool:
    """Whether the user gave the option, be it with its default's value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def checked_options(given: Mapping[str, Any]) -> CheckedOptions:
    """Check the options that say how to split, as far as the command has them."""
    names = [field.name for field in fields(SplitOptions) if field.name in given]
    return check_options(SplitOptions(**{name: given[name] for name in names}))


def near_of(given: Mapping[str, Any]) -> Nearness | None:
    """Read --near-duplicates."""
    text = given.get("near_duplicates")
    return None if text is None else Nearness.of_text(text, "--near-duplicates")
