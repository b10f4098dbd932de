"""Where a run's results go: checked before the work, written after it.

Pages and annotated copies, which few runs make, are imported where they are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from clustersplit_cli.cli.replay import reproducing_command
from clustersplit_cli.data.destination import Destination, output_error, resolve
from clustersplit_cli.data.publish import check_destination, check_file_destination, recover
from clustersplit_cli.data.readers.naming import as_url
from clustersplit_cli.data.writers import check_formats, check_ids
from clustersplit_cli.errors import OutputError, UsageError
from clustersplit_cli.reports.json_report import load_report
from clustersplit_cli.reports.readable import render_json

if TYPE_CHECKING:
    from rich.console import Console

    from clustersplit_cli.data.dataset import Dataset
    from clustersplit_cli.pipeline.engine import Engine
    from clustersplit_cli.pipeline.run import Run

STDOUT = "-"
SUFFIXES = {".parquet", ".pq", ".parq", ".arrow", ".feather", ".ipc", ".csv", ".tsv", ".txt", ".npy", ".npz"}


@dataclass(frozen=True)
class Output:
    """The destinations of a run; `directory` is None when only indices go to stdout."""

    directory: Path | None
    formats: tuple[str, ...]
    annotate: Path | None
    force: bool
    json: bool
    source: Path
    html: bool = False

    @classmethod
    def from_options(cls, source: Path, given: Mapping[str, Any], suffix: str = "_split") -> Output:
        """Read the output options and refuse combinations that would mix two things on stdout.

        Parameters
        ----------
        suffix : of the default directory, after the name of the source.
        """
        formats = tuple(dict.fromkeys(given["format"] or ("npy",)))
        check_formats(formats)
        to_stdout = given["out"] == STDOUT
        if given["quiet"] and given["verbose"]:
            raise UsageError("--quiet and --verbose contradict each other", hint="use one of them")
        if given["out"] == "":
            raise UsageError("--out is empty", hint="name a directory, or leave --out out")
        if to_stdout and given["json"]:
            raise UsageError("--out - and --json both write to stdout", hint="use one of them")
        if to_stdout and formats != ("txt",):
            raise UsageError(
                f"--out - writes text, not {' and '.join(name for name in formats if name != 'txt')}",
                hint="use --out - --format txt",
            )
        if to_stdout and given["id"] is not None:
            raise UsageError("--out - writes no ids", hint="drop --id, or name a directory with --out")
        if to_stdout and given.get("weights"):
            raise UsageError("--out - writes no weights", hint="name a directory with --out")
        html = given.get("html", False)  # `baseline` has no such option
        if to_stdout and html:
            raise UsageError("--out - writes no report.html", hint="name a directory with --out")
        if html:
            from clustersplit_cli.reports.html_page import check_available

            check_available()
        directory = Path(given["out"] or f"{stem(source)}{suffix}")
        return cls(
            directory=None if to_stdout else directory,
            formats=formats,
            annotate=given["annotate"],
            force=given["force"],
            json=given["json"],
            source=source,
            html=html,
        )

    def prepare(self, inputs: list[Path], console: Console) -> None:
        """Recover what killed runs left, and say so, then refuse destinations that cannot be written."""
        for place in (self.directory, self.annotate):
            for line in [] if place is None else recover(place):
                console.print(f"note: {line}", soft_wrap=True)
        if self.directory is not None:
            check_destination(self.directory, force=self.force, inputs=inputs)
        if self.annotate is not None:
            from clustersplit_cli.data.annotate import check_annotation

            self._refuse_annotation_inside_directory(self.annotate)
            check_file_destination(self.annotate, force=self.force, inputs=inputs)
            check_annotation(self.source, self.annotate)

    def _refuse_annotation_inside_directory(self, file: Path) -> None:
        """The directory is replaced as a whole, and what was put into it before would go with the old one."""
        if self.directory is None:
            return
        directory, target = resolve(self.directory), resolve(file)
        if target == directory or directory in target.parents:
            raise UsageError(
                f"--annotate {file} lies inside the output directory {self.directory}",
                hint="choose a file outside it",
            )

    def check(self, dataset: Dataset) -> None:
        """Refuse what could not be written, now that the input is known and before the long work."""
        if dataset.ids is not None:
            check_ids(dataset.ids, self.formats)

    def write(self, engine: Engine[Any, Any], result: Run) -> list[Path]:
        """Write everything that was asked for; return the paths of the files."""
        text = render_json(result.report)
        to = Destination(
            self.directory,
            text,
            self._page(text, result),
            self.formats,
            self.source,
            self.annotate,
            self.force,
        )
        paths = engine.write(result.parts, to)
        if self.json:
            print_to_stdout(text, self.directory)
        return paths

    def _page(self, text: str, result: Run) -> str | None:
        """The HTML report, if it was asked for."""
        if result.portrait is None or self.directory is None:
            return None
        from clustersplit_cli.reports.html import render_html

        report = load_report(text, source="the report")
        command = reproducing_command(report, self.source, self.directory)
        return render_html(report, result.portrait, title=self.source.name, command=command)


def print_to_stdout(text: str, published: Path | None = None) -> None:
    """Print text as UTF-8, whatever the terminal's own encoding.

    Parameters
    ----------
    published : what is on disk already, as an error has to say.
    """
    try:
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        refused = output_error("standard output", error)
        if published is not None:
            refused = OutputError(
                f"{refused.message}; {published} is complete nevertheless", hint=refused.hint
            )
        raise refused from error


def stem(source: Path) -> str:
    """The name of the input without the extension of its format; `features` if it has no name."""
    url = as_url(source)
    if url is not None:
        source = Path(urlsplit(url).path)
    name = source.name if source.name not in ("", "..") else source.resolve().name
    shorter = Path(name).stem if Path(name).suffix.lower() in SUFFIXES else name
    return shorter or "features"
