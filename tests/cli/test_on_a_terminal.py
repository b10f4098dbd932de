"""What people at a terminal see, looked at through a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pytest

DRIVER = """
import sys
import clustersplit_cli.cli.console as console
from clustersplit_cli.cli import main

console.SECONDS_UNTIL_SHOWN = float(sys.argv.pop(1))
main()
"""
AT_ONCE, NEVER = "0", "3600"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Seen:
    """All that was sent to the terminal, and what was left on its screen."""

    code: int
    sent: str

    @property
    def frames(self) -> list[str]:
        """Every line that was ever shown, without codes."""
        return [CODES.sub("", part).rstrip() for part in re.split(r"[\r\n]", self.sent)]

    @property
    def screen(self) -> list[str]:
        """The lines left at the end: a terminal in so far as progress bars need one."""
        lines, row = [""], 0
        for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", self.sent):
            if piece == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif piece == "\x1b[2K":
                lines[row] = ""
            elif piece == "\x1b[1A":
                row -= 1
            elif piece != "\r" and piece[0] != "\x1b":
                lines[row] += piece
        return [line for line in lines if line]


@pytest.fixture
def watch(folder: Path) -> Callable[..., Seen]:
    """Run `clustersplit split` with stderr on a terminal."""

    def call(*arguments: str, patience: str = AT_ONCE, width: int = 80, **environment: str) -> Seen:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
        removed = ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
        inherited = {name: value for name, value in os.environ.items() if name not in removed}
        running = subprocess.Popen(
            [sys.executable, "-c", DRIVER, patience, "split", "--effort", "fast", *arguments],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env={**inherited, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        sent = b""
        try:
            while piece := os.read(ours, 65536):
                sent += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
        return Seen(running.wait(timeout=60), sent.decode())

    return call


@pytest.mark.parametrize("width", [80, 40])
def test_the_bar_goes_through_all_stages_within_the_width_and_disappears(
    width: int, watch: Callable[..., Seen]
) -> None:
    seen = watch("feats.parquet", "--verbose", width=width)
    assert seen.code == 0
    bars = [frame for frame in seen.frames if "━" in frame]
    stages = list(dict.fromkeys(bar.split()[0] for bar in bars))
    assert len(stages) >= 4
    assert stages[-2:] == ["certificate", "hash"]
    assert "polish" in stages
    assert max(len(bar) for bar in bars) <= width
    assert not [line for line in seen.screen if "━" in line]
    assert seen.screen[0].startswith("kernel: dense rbf")
    assert seen.screen[-1] == "wrote feats_split/report.json"
    table = [line for line in seen.screen if not line.startswith(("kernel: ", "warning: ", "wrote "))]
    assert max(len(line) for line in table) <= width
    assert seen.sent.count("\x1b[?25l") == seen.sent.count("\x1b[?25h") == 1  # the cursor comes back


def test_reading_and_the_kernel_show_their_progress(watch: Callable[..., Seen], folder: Path) -> None:
    rows = 6000  # enough that the kernel takes longer than a bar waits, on a fast machine too
    columns = {f"f{column}": pa.array(range(rows)).cast(pa.float64()) for column in range(200)}
    pa.csv.write_csv(pa.table({**columns, "label": [1] * rows}), folder / "wide.csv")
    seen = watch("wide.csv", "--restarts", "1")
    bars = [frame for frame in seen.frames if "━" in frame]
    assert seen.code == 0
    assert {"read", "kernel"} <= {bar.split()[0] for bar in bars}
    assert [bar for bar in bars if bar.startswith("kernel") and "%" in bar]


def test_quick_work_shows_no_bar(watch: Callable[..., Seen]) -> None:
    from clustersplit_cli.cli.console import SECONDS_UNTIL_SHOWN

    assert 0.5 <= SECONDS_UNTIL_SHOWN <= 1
    seen = watch("feats.parquet", patience=NEVER)
    assert "━" not in seen.sent
    assert "\x1b[?25l" not in seen.sent
    assert "\x1b[36mrows" in seen.sent  # the table has its colours


def test_the_bar_disappears_before_an_error_is_shown(watch: Callable[..., Seen]) -> None:
    seen = watch("feats.parquet", CLUSTERSPLIT_CBC="/nowhere/cbc")
    assert seen.code == 4
    assert [frame for frame in seen.frames if "━" in frame]
    assert [line.split(":")[0] for line in seen.screen] == ["error", "hint"]
    assert "\x1b[31;1merror:\x1b[0m" in seen.sent


@pytest.mark.parametrize(
    ("environment", "patience"),
    [({"NO_COLOR": "1"}, NEVER), ({"TERM": "dumb"}, AT_ONCE)],
    ids=["NO_COLOR", "dumb"],
)
def test_no_colours_where_they_are_not_wanted_and_no_bar_on_a_dumb_terminal(
    environment: dict[str, str], patience: str, watch: Callable[..., Seen]
) -> None:
    seen = watch("feats.parquet", "--gamma", "1e8", patience=patience, **environment)
    assert seen.code == 0
    assert "warning: " in seen.sent
    assert "\x1b" not in seen.sent
    assert "━" not in seen.sent
    assert watch("nowhere", patience=patience, **environment).sent.startswith("error: ")


def test_quiet_shows_nothing(watch: Callable[..., Seen]) -> None:
    assert watch("feats.parquet", "--quiet").sent == ""


@pytest.mark.parametrize("width", [70, 120])
def test_help_on_a_terminal_is_as_wide_as_it(width: int) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    words = [sys.executable, "-m", "clustersplit_cli", "evaluate", "--help"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        sent = b""
        try:
            while piece := os.read(ours, 65536):
                sent += piece
        except OSError:  # how Linux says that the other end is closed
            pass
        assert running.wait(timeout=60) == 0
    os.close(ours)
    widest = max(map(len, sent.decode().splitlines()))
    assert width - 10 <= widest <= width
