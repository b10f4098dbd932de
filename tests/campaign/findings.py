"""What a command must never do, whatever it is given: the rules, and the breaches found."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.process import Result

LONGEST_LINE = 1_500
SLOW_SECONDS = 15.0
CAN_FAIL_A_CHECK = frozenset({"verify", "mmd"})
ASKS_OTHERS = ("--scheduler", "--command", "dask")
NEVER_SAID = (
    "Traceback (most recent call last)",
    "Warning:",
    "Exception ignored",
    "Fatal Python error",
    "Aborted",
)

Snapshot = dict[str, str]


@dataclass(frozen=True)
class Finding:
    """One breach of a rule."""

    rule: str
    detail: str

    @property
    def signature(self) -> str:
        """The same for findings that look alike."""
        plain = re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", self.detail)
        return f"{self.rule}: {re.sub(r'[0-9][0-9.e+-]*', '#', plain)[:110]}"


@dataclass
class Outcome:
    """What came of one case.

    Attributes
    ----------
    tags : what happened, counted: exit codes, follow-ups, optima that were reached.
    slow : commands that took long, and how long.
    """

    findings: list[Finding] = field(default_factory=list)
    tags: Counter[str] = field(default_factory=Counter)
    slow: list[tuple[float, str]] = field(default_factory=list)

    def add(self, rule: str, detail: str) -> None:
        """Note a breach."""
        self.findings.append(Finding(rule, detail))

    def ran(self, result: Result) -> None:
        """Judge a command by how it ended and what it said."""
        self.findings += judged(result)
        self.tags[f"exit {result.code}"] += 1
        self.tags["commands"] += 1
        if result.seconds > SLOW_SECONDS:
            self.slow.append((result.seconds, shown(result.words)))


def shown(words: tuple[str, ...]) -> str:
    """A command line, to read."""
    return " ".join(repr(word) if not word or re.search(r"[^\w./=,:-]", word) else word for word in words)[
        :600
    ]


def judged(result: Result) -> list[Finding]:
    """The breaches that the end of a command and its words show."""
    said = result.err.split("\n")[:-1] if result.err.endswith("\n") else result.err.split("\n")
    last = "\n".join(said[-25:])
    if result.code is None:
        return [Finding("takes too long", f"after {result.seconds:.0f} s:\n{last}")]
    found = []
    if result.code < 0:
        found.append(Finding("killed by a signal", f"{-result.code}: {last}"))
    elif result.code not in allowed_codes(result.words):
        found.append(Finding(f"exit code {result.code}", last))
    if result.strays:
        found.append(Finding("left a process behind", last))
    found += [
        Finding(f"said {words}", _around(result.err, words)) for words in NEVER_SAID if words in result.err
    ]
    found += [
        Finding("a line that nobody can read", f"{len(line)} letters: {line[:200]}")
        for line in said
        if len(line) > LONGEST_LINE
    ]
    found += _wrong_errors(result.code, said)
    if result.code in FAILED and result.out:
        found.append(Finding("output on stdout of a failed run", result.out[:300]))
    if result.code == 0 and "--json" in result.words and "--help" not in result.words:
        try:
            json.loads(result.out, parse_constant=_refuse_constant)
        except ValueError as error:
            found.append(Finding("--json gives no JSON", f"{error}: {result.out[:200]!r}"))
    return found


FAILED = (2, 3, 4, 70)


def _wrong_errors(code: int, said: list[str]) -> list[Finding]:
    """An error is one line, its cure the next, and nothing follows; where nothing failed there is none."""
    errors = [line for line in said if line.startswith("error:")]
    hints = [line for line in said if line.startswith("hint:")]
    last = "\n".join(said[-25:]) or "(nothing on stderr)"
    if code == 0 and errors:
        return [Finding("an error, but exit code 0", errors[0])]
    if code not in FAILED:
        return []
    if (len(errors), len(hints)) != (1, 1):
        return [Finding(f"{len(errors)} lines of error and {len(hints)} of hint", last)]
    if said[-2:] != [errors[-1], hints[-1]]:
        return [Finding("error and hint are not the last two lines", last)]
    return []


def allowed_codes(words: tuple[str, ...]) -> set[int]:
    """The exit codes that are documented for such a command line."""
    codes = {0, 2, 3}
    if words and words[0] in CAN_FAIL_A_CHECK:
        codes.add(1)
    if any(word.startswith(ASKS_OTHERS) for word in words) or "--engine=dask" in words:
        codes.add(4)
    return codes


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _around(text: str, words: str) -> str:
    """What was said from some words on."""
    place = text.find(words)
    begin = text.rfind("\n", 0, place) + 1
    return (
        text[begin : begin + 3_000][-1_500:] if words.startswith("Traceback") else text[begin : begin + 400]
    )


def snapshot(folder: Path) -> Snapshot:
    """Every file below a folder and what it holds, links and pipes as such."""
    found: Snapshot = {}
    for root, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = os.path.join(root, name)  # noqa: PTH118 - names may be anything
            found[os.path.relpath(path, folder)] = _content(path)
    return found


def _content(path: str) -> str:
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return f"link to {os.readlink(path)}"  # noqa: PTH115
    if stat.S_ISREG(status.st_mode):
        with open(path, "rb") as stream:  # noqa: PTH123
            return hashlib.sha256(stream.read()).hexdigest()
    return f"mode {stat.S_IFMT(status.st_mode):o}"


def left_behind(before: Snapshot, after: Snapshot, place: Path, result: Result) -> list[Finding]:
    """Breaches that the files show: inputs changed, staging areas, output of a run that failed."""
    found = []
    may_replace = "--force" in result.words
    changed = [path for path, content in before.items() if after.get(path) != content]
    if changed and not may_replace:
        found.append(Finding("an input changed", ", ".join(changed[:3])))
    new = sorted(set(after) - set(before))
    staged = [path for path in new if ".clustersplit-" in path]
    if staged:
        found.append(Finding("a staging area was left", ", ".join(staged[:3])))
    evaluates = result.words[:1] == ("evaluate",)  # keeps the trials that are done, to resume
    if result.code not in (0, 1) and new and not staged and not evaluates:
        found.append(Finding("a failed run left output", f"exit {result.code}: {', '.join(new[:4])}"))
    temporary = sorted(os.listdir(place / "tmp"))  # noqa: PTH208
    if temporary:
        found.append(Finding("temporary files were left", ", ".join(temporary[:3])))
    return found


def run_directories(folder: Path) -> list[Path]:
    """The directories that hold a report, at or below a folder."""
    return sorted(path.parent for path in folder.rglob("report.json")) if folder.is_dir() else []


def read_report(directory: Path) -> dict[str, Any]:
    """The report of a run."""
    report: dict[str, Any] = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    return report
