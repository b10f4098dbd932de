"""The `clustersplit` program: its commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from clustersplit_cli import __version__
from clustersplit_cli.cli.declarations import COMMANDS, Command
from clustersplit_cli.cli.help import GroupedHelp, refuse_value_of_help
from clustersplit_cli.cli.options import Body, with_parameters
from clustersplit_cli.cli.process import CLEAN, INTERRUPTED, Stopped, mark_reported, mute
from clustersplit_cli.errors import ClusterSplitError, printable, shortened

BUG = 70
COMPLETING = "_CLUSTERSPLIT_COMPLETE"
"""What a shell sets that wants to know how a word may go on."""
WIDEST_HELP = 160
"""Help is as wide as the terminal, but longer lines are hard to read."""
START = """Example: clustersplit split feats.parquet --h 0.2

Start with `clustersplit inspect FEATURES`, then `clustersplit split --help`. For completion with Tab in bash,
zsh and fish: `clustersplit --install-completion`, then open a new shell."""


def program(words: Sequence[str] | None = None) -> typer.Typer:
    """The program: all of it, or what some words of a command line take.

    To make the parameters of all commands takes half as long again as to start.

    Parameters
    ----------
    words : of the command line; None for all commands with all parameters.
    """
    made = typer.Typer(
        name="clustersplit",
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST_HELP},
    )
    made.callback(invoke_without_command=True, epilog=START)(_start)
    first = next((word for word in words or () if not word.startswith("-")), None)
    named = [command for command in COMMANDS if command.name == first]
    for command in named or COMMANDS:
        # Where no command is named, there is help on them to show, or a wrong name to explain.
        arguments, options = (command.arguments, command.options) if named or words is None else ({}, ())
        made.command(
            command.name,
            cls=GroupedHelp,
            help=command.help,
            short_help=command.summary,
            epilog=f"Example: {command.example}",
        )(with_parameters(_body(command), arguments, options))
    return made


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clustersplit {__version__}")
        raise typer.Exit


def _start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train/validation splits that are as different as the constraints allow.

    Choose the split that maximises the maximum mean discrepancy (MMD) between training and validation rows
    while every class, in every domain, keeps its share.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _body(command: Command) -> Body:
    """What the command does; its module, and what that needs, is imported when it runs."""

    def run_command(context: typer.Context) -> None:
        import_module(f"clustersplit_cli.cli.commands.{command.name}").run(context)

    return run_command


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program on the arguments, by default the process's own, and return its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or os.environ.get("CLUSTERSPLIT_DEBUG", "") not in ("", "0")
    try:
        refuse_value_of_help(words)
        code = program(None if COMPLETING in os.environ else words)(
            args=words, standalone_mode=False, prog_name="clustersplit"
        )
        sys.stdout.flush()
        if code == INTERRUPTED:  # Typer turns the exception into its exit code
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        mute(sys.stdout.fileno())  # the reader has what it wanted; Typer would exit with 1
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _explain("interrupted", CLEAN, INTERRUPTED)
    except Stopped as stop:
        return _explain(f"stopped by {stop.name}", CLEAN, stop.exit_code)
    except Exception as error:
        if debug:
            import traceback

            traceback.print_exception(error)
        return _explain(*_in_words(error, words))


def _in_words(error: Exception, words: Sequence[str]) -> tuple[str, str | None, int]:
    """Say what is wrong, what helps, and with which exit code to end."""
    if isinstance(error, ClusterSplitError):
        return error.message, error.hint, error.exit_code
    if isinstance(error, MemoryError):
        return "out of memory", "allow less with --memory, or use --nystrom 1000", 2
    if isinstance(error, OSError):  # what the system refuses is no bug, wherever it is met
        from clustersplit_cli.data.destination import CAUSES, output_error

        if error.errno in CAUSES:
            refused = output_error(error.filename or "the output", error)
            return refused.message, refused.hint, refused.exit_code
    # Typer carries its own copy of Click, so its errors are known by what they can do.
    if hasattr(error, "format_message"):
        message = error.format_message().strip().rstrip(".")
        known = [command.name for command in COMMANDS]
        command = f"clustersplit {words[0]}" if words and words[0] in known else "clustersplit"
        return message[:1].lower() + message[1:], f"see {command} --help", 2
    cure = "this is a bug in clustersplit: please report it with the output of the same command and --debug"
    return f"{type(error).__name__}: {error}", cure, BUG


def _explain(message: str, hint: str | None, code: int) -> int:
    """Print what is wrong and the cure on stderr, one line each; return the exit code."""
    mark_reported()
    try:
        sys.stdout.flush()
    except OSError:  # it was the stream that failed: closing it must not fail again
        mute(sys.stdout.fileno())
    _print_line("error:", "31;1", message)
    if hint:
        _print_line("hint:", "32", hint)
    return code


def _print_line(word: str, colour: str, text: str) -> None:
    from clustersplit_cli.cli.console import wants_colour

    lead = f"\x1b[{colour}m{word}\x1b[0m" if wants_colour() else word
    sys.stderr.write(f"{lead} {printable(shortened(text))}\n")
    sys.stderr.flush()
