"""The command line: one file per command, one place that catches errors."""

from __future__ import annotations


def main() -> None:
    """Run `clustersplit` on the process's own arguments and exit."""
    from clustersplit_cli.cli.process import INTERRUPTED, Stopped, leave, prepare

    message = None
    try:
        prepare()
        from clustersplit_cli.cli.app import run

        code = run()
    except KeyboardInterrupt:  # while starting, or again while the first one was being dealt with
        code, message = INTERRUPTED, "interrupted"
    except Stopped as stop:
        code, message = stop.exit_code, f"stopped by {stop.name}"
    leave(code, message)
