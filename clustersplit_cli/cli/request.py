"""What is read: the options of reading in the readers' words, and as a report repeats them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers.naming import report_path
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import parse_families
from clustersplit_cli.similarity import DISTANCES, pairs_of

if TYPE_CHECKING:
    from clustersplit_cli.cli.output import Output
    from clustersplit_cli.data.dataset import Dataset


def read_request(features: Path, given: Mapping[str, Any]) -> ReadRequest:
    """Put the reading options in the readers' words."""
    words, families = parse_families(given["stratify"])
    return ReadRequest(
        path=features,
        columns=_globs(given["columns"] or []),
        label=given["label"],
        domain=given["domain"],
        label_file=given["label_file"],
        domain_file=given["domain_file"],
        metadata=given["metadata"],
        stratify=words,
        families=families,
        exclude=tuple(_column_and_value(text) for text in given["exclude"] or ()),
        id_column=given["id"],
        drop_invalid=given["drop_invalid"],
        impute=given["impute"],
        label_bins=given.get("label_bins"),
        together=given.get("keep_together"),
        force_train=given.get("force_train"),
        force_val=given.get("force_val"),
        target=given.get("target"),
        pairs=pairs_of(given.get("kernel"), distances=bool(given.get("distances"))),
    )


def inputs_of(request: ReadRequest) -> list[Path]:
    """Every file or directory that will be read."""
    companions = (
        *(request.label_file, request.domain_file, request.metadata),
        *(request.force_train, request.force_val, request.target_file),
    )
    return [request.path, *(path for path in companions if path is not None)]


def reading_config(request: ReadRequest, dataset: Dataset, output: Output) -> dict[str, Any]:
    """The options of reading and writing as they were resolved, in the form `--config` takes back."""

    def column(word: str, name: str | None, companion: Path | None) -> str | None:
        if name is not None and name != word:
            return name
        # The default name tells nothing unless it was used: an earlier run's is left to default again.
        used = word in dataset.categories or any(word == excluded for excluded, _ in request.exclude)
        return word if used and companion is None else None

    def text(path: Path | None) -> str | None:
        return None if path is None else str(path)

    return {
        "features": report_path(request.path),
        "columns": list(request.columns),
        "label": column("label", request.label, request.label_file),
        "domain": column("domain", request.domain, request.domain_file),
        "label_file": text(request.label_file),
        "domain_file": text(request.domain_file),
        "metadata": text(request.metadata),
        "stratify": [",".join(words) or "none" for words in dataset.families or (tuple(dataset.categories),)],
        "exclude": [f"{column}={value}" for column, value in request.exclude],
        "id": request.id_column,
        "drop_invalid": request.drop_invalid,
        **({} if request.impute == "none" else {"impute": request.impute}),
        **({"distances": True} if request.pairs == DISTANCES else {}),
        "parts": None,
        "label_bins": request.label_bins,
        "keep_together": request.together,
        "force_train": text(request.force_train),
        "force_val": text(request.force_val),
        "target": request.target,
        "format": list(output.formats),
    }


def _globs(texts: list[str]) -> tuple[str, ...]:
    """Read --columns: every text may hold several globs."""
    globs = tuple(glob for text in texts for glob in text.split(","))
    if "" in globs:
        raise UsageError("--columns has an empty name", hint="for example --columns 'f*' or --columns a,b")
    return globs


def _column_and_value(text: str) -> tuple[str, str]:
    column, separator, value = text.partition("=")
    if not separator or not column:
        raise UsageError(
            f"--exclude '{text}' is not COLUMN=VALUE", hint="for example --exclude domain=sketch"
        )
    return column, value
