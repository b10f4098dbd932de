"""Write the reference pages that are made from the program itself: `python docs/generate.py [--check]`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NOTE = "<!-- Written by docs/generate.py; `make docs` writes it anew. -->\n"


def cli_page() -> str:
    """The help of every command, as it is printed at 80 columns."""
    os.environ["COLUMNS"] = "80"
    from typer.main import get_command

    from clustersplit_cli.cli.app import program as whole

    program: Any = get_command(whole())
    with program.make_context("clustersplit", [], resilient_parsing=True) as context:
        parts = [("clustersplit", program.get_help(context))]
        for name, command in program.commands.items():
            with command.make_context(name, [], parent=context, resilient_parsing=True) as inner:
                parts.append((f"clustersplit {name}", command.get_help(inner)))
    sections = [f"## {name}\n\n```text\n{plain(text)}\n```\n" for name, text in parts]
    return f"{NOTE}# Command line\n\n" + "\n".join(sections)


def plain(text: str) -> str:
    """Help without spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


class ManualSections:
    """Takes the place of a help formatter, and writes the groups of options in the language of man pages."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """Begin a group."""
        self.lines.append(f'.SS "{roff(title)}"')
        yield

    def write_dl(self, records: Sequence[tuple[str, str]]) -> None:
        """Write options and what they mean."""
        for option, meaning in records:
            self.lines += [".TP", rf"\fB{roff(option)}\fR", roff(meaning)]


def manual_page() -> str:
    """The help of every command as one man page."""
    from typer.main import get_command

    from clustersplit_cli import __version__
    from clustersplit_cli.cli.app import program as whole

    program: Any = get_command(whole())
    summary, _, about = (program.help or "").partition("\n")
    lines = [
        r".\" Written by docs/generate.py; `make docs` writes it anew.",
        f'.TH CLUSTERSPLIT 1 "" "clustersplit {__version__}"',
        ".SH NAME",
        rf"clustersplit \- {roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        r"\fBclustersplit\fR \fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH DESCRIPTION",
        *paragraphs(about),
    ]
    with program.make_context("clustersplit", [], resilient_parsing=True) as context:
        for name, command in program.commands.items():
            with command.make_context(name, [], parent=context, resilient_parsing=True) as inner:
                options = ManualSections()
                command.format_options(inner, options)
                usage = " ".join(command.collect_usage_pieces(inner))
                lines += [
                    f'.SH "{name.upper()}"',
                    rf"\fBclustersplit {name}\fR {roff(usage)}",
                    ".PP",
                    *paragraphs(command.help or ""),
                    ".PP",
                    *paragraphs(command.epilog or ""),
                    *options.lines,
                ]
    return "\n".join(lines) + "\n"


def paragraphs(text: str) -> Iterator[str]:
    """Text between empty lines, one paragraph each."""
    for place, paragraph in enumerate(text.strip().split("\n\n")):
        if place:
            yield ".PP"
        yield roff(" ".join(paragraph.split()))


def roff(text: str) -> str:
    """Text that man shows as it is."""
    shown = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq")
    return rf"\&{shown}" if shown.startswith((".", "'")) else shown


def schema_page() -> str:
    """Every key of `report.json`, from its schema."""
    from clustersplit_cli.reports.json_report import report_schema

    schema = report_schema()
    lines = [
        f"{NOTE}# report.json",
        "",
        schema["description"],
        "The JSON Schema itself ships in the package as `clustersplit_cli/reports/report.schema.json`.",
        "",
        "| key | type | meaning |",
        "| --- | --- | --- |",
        *rows_of(schema, schema),
        "",
    ]
    for name, definition in schema["$defs"].items():
        lines += [f"## {name}", "", definition.get("description", ""), "", "| key | type | meaning |"]
        lines += ["| --- | --- | --- |", *rows_of(definition, schema), ""]
    return "\n".join(lines)


def rows_of(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    """One table row per property."""
    for key, value in node.get("properties", {}).items():
        meaning = value.get("description") or target(value, schema).get("description", "")
        yield f"| `{key}` | {type_of(value)} | {meaning.replace('|', chr(92) + '|')} |"


def target(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The definition a property refers to, if any."""
    found: Mapping[str, Any] = schema["$defs"].get(node.get("$ref", "").rpartition("/")[2], {})
    return found


def type_of(node: Mapping[str, Any]) -> str:
    """The type of a property in words, with links to definitions."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in node:
        return " or ".join(type_of(option) for option in node["anyOf"])
    if "const" in node:
        return f"`{node['const']}`"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    kind = node.get("type", "any")
    if kind == "array":
        return f"list of {type_of(node.get('items', {}))}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


PAGES = {
    "reference/cli.md": cli_page,
    "reference/report-json.md": schema_page,
    "man/clustersplit.1": manual_page,
}


def main(arguments: list[str]) -> int:
    """Write the pages or, with --check, say which are out of date."""
    stale = []
    for name, make in PAGES.items():
        path, text = HERE / name, make()
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run python docs/generate.py\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
