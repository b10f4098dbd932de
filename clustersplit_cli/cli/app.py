"""The `clustersplit` program: its commands, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Annotated, NoReturn

import typer

from clustersplit_cli import __version__
from clustersplit_cli.cli import split
from clustersplit_cli.errors import ClusterSplitError

BUG = 70
INTERRUPTED = 130

app = typer.Typer(
    name="clustersplit",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"clustersplit {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Train/validation splits that are as different as the constraints allow.

    Choose the split that maximises the maximum mean discrepancy (MMD) between training and validation rows
    while every class, in every domain, keeps its share.
    """


app.command(
    "split",
    epilog="Example: clustersplit split feats.parquet --h 0.2 --kernel rbf",
    no_args_is_help=True,
)(split.split)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    signal.signal(signal.SIGTERM, _stop)
    try:
        code = app(args=arguments, standalone_mode=False, prog_name="clustersplit")
        sys.stdout.flush()
    except ClusterSplitError as error:
        return _explain(error.message, error.hint, error.exit_code, error)
    except BrokenPipeError:
        # The reader has what it wanted. Point stdout elsewhere so that closing it cannot fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return _explain("interrupted; nothing was written", None, INTERRUPTED)
    except MemoryError as error:
        return _explain("out of memory", "allow less with --memory, or use --nystrom 1000", 2, error)
    except Exception as error:
        return _explain_unexpected(error)
    return code if isinstance(code, int) else 0


def _stop(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Turn a polite kill into an exception, so that temporary files are removed on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def _explain_unexpected(error: Exception) -> int:
    # Typer carries its own copy of Click, so its usage errors are known by what they can do.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "clustersplit"
        message = error.format_message().rstrip(".")
        return _explain(message, f"see {command} --help", 2)
    message = f"{type(error).__name__}: {error}".replace("\n", " ")
    cure = "this is a bug in clustersplit: please report it with the output of the same command and --debug"
    return _explain(message, cure, BUG, error)


def _explain(message: str, hint: str | None, code: int, error: BaseException | None = None) -> int:
    """Print what is wrong and the cure on stderr, the traceback only if asked for; return the exit code."""
    if error is not None and debugging():
        import traceback

        traceback.print_exception(error)
    colour = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    typer.secho("error: ", fg="red" if colour else None, bold=colour, nl=False, err=True)
    typer.echo(_one_line(message), err=True)
    if hint:
        typer.secho("hint:  ", fg="green" if colour else None, nl=False, err=True)
        typer.echo(_one_line(hint), err=True)
    return code


def _one_line(text: str) -> str:
    """Keep a message to one line, whatever file names it quotes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\n", "\\n").replace("\r", "\\r")


def debugging() -> bool:
    """Whether tracebacks were asked for, with --debug or CLUSTERSPLIT_DEBUG=1."""
    return "--debug" in sys.argv or os.environ.get("CLUSTERSPLIT_DEBUG", "") not in ("", "0")
