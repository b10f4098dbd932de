"""Which columns are labels, domains, cells, exclusions and ids, and in which file they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clustersplit_cli.data.dataset import ReadRequest
from clustersplit_cli.data.readers.naming import shown, suggestion
from clustersplit_cli.data.readers.source import Source
from clustersplit_cli.errors import InputError, UsageError
from clustersplit_cli.similarity import is_of_features

LABEL, DOMAIN = "label", "domain"
NO_DOMAIN = "none"
"""Stands for a domain column: there is none, whatever columns there are."""


@dataclass(frozen=True)
class Inputs:
    """Everything a request names, opened; None where it names nothing."""

    features: Source
    label: Source | None = None
    domain: Source | None = None
    metadata: Source | None = None

    def by_role(self) -> dict[str, Source]:
        """The opened inputs by the role they have in the report."""
        named = {"features": self.features, LABEL: self.label, DOMAIN: self.domain, "metadata": self.metadata}
        return {role: source for role, source in named.items() if source is not None}


@dataclass(frozen=True)
class Place:
    """A column of one of the inputs."""

    role: str  # of the input: features, label, domain or metadata
    column: str


@dataclass(frozen=True)
class Roles:
    """What the columns are for.

    Attributes
    ----------
    family : the columns whose joint values are the cells, by the user's words, in order.
    exclude : (word, place, value as text) of rows to leave out.
    ids : the id column.
    together : the column of units.
    reserved : columns of the features file that are never features.
    notes : warnings, as (code, message).
    """

    family: Mapping[str, Place]
    exclude: tuple[tuple[str, Place, str], ...]
    ids: Place | None
    together: Place | None
    reserved: frozenset[str]
    notes: tuple[tuple[str, str], ...]


def assign_roles(request: ReadRequest, inputs: Inputs) -> Roles:
    """Find every column the request names or implies."""
    finder = _Finder(request, inputs)
    label = finder.named(LABEL, request.label, inputs.label)
    domain = finder.named(DOMAIN, request.domain, inputs.domain)
    words = request.stratify
    if words is None:
        words = (LABEL,) if domain is None else (LABEL, DOMAIN)
    if len(set(words)) < len(words):
        raise UsageError(
            f"a column is named twice in --stratify {','.join(words)}", hint="name each column once"
        )
    known = {LABEL: label, DOMAIN: domain}
    family = {word: finder.word(word, known) for word in words}
    exclude = tuple((word, finder.word(word, known), value) for word, value in request.left_out)
    ids = finder.word(request.id_column, {}) if request.id_column is not None else None
    by_column = request.together is not None and not is_of_features(request.together)
    together = finder.word(request.together or "", known) if by_column else None
    used = [*known.values(), *family.values(), *(place for _, place, _ in exclude), ids, together]
    # A column that is used from a companion file is not a feature under the same name either.
    reserved = {
        place.column for place in used if place is not None and place.column in inputs.features.columns
    }
    return Roles(family, exclude, ids, together, frozenset(reserved), tuple(finder.notes))


class _Finder:
    """Looks words up in the metadata first, then in the features file."""

    def __init__(self, request: ReadRequest, inputs: Inputs) -> None:
        self._request = request
        self._inputs = inputs
        self.notes: list[tuple[str, str]] = []

    def named(self, role: str, name: str | None, companion: Source | None) -> Place | None:
        """Find the label or domain column; only a name the user gave must exist."""
        if companion is not None:
            if name is not None:
                raise UsageError(f"--{role} and --{role}-file are both given", hint="give one of them")
            return Place(role, role)
        if role == DOMAIN and name == NO_DOMAIN:
            return None
        place = self._find(role if name is None else name)
        if place is None and name is not None:
            raise self._missing(name, f"--{role}")
        return place

    def word(self, word: str, known: Mapping[str, Place | None]) -> Place:
        """Find a column by a word, where `label` and `domain` mean the roles."""
        place = known[word] if word in known else self._find(word)
        if place is None:
            raise self._missing(word)
        return place

    def _find(self, name: str) -> Place | None:
        features, metadata = self._inputs.features, self._inputs.metadata
        if metadata is not None and (column := metadata.find(name)) is not None:
            both = f"{name!r} is in both {shown(features.path)} and {shown(metadata.path)}"
            note = ("column_in_both", f"column {both}; the latter is used")
            if name in features.columns and note not in self.notes:
                self.notes.append(note)
            return Place("metadata", column)
        column = features.find(name)
        return None if column is None else Place("features", column)

    def _missing(self, word: str, option: str | None = None) -> InputError:
        """Name the columns that come closest."""
        if word == DOMAIN and self._request.domain == NO_DOMAIN:
            return InputError(
                f"--domain {NO_DOMAIN} leaves no column for {word!r}",
                hint="drop --domain, or name the column",
            )
        sources = [source for source in (self._inputs.features, self._inputs.metadata) if source is not None]
        where = " or ".join(shown(source.path) for source in sources)
        near = suggestion(word, [name for source in sources for name in source.columns])
        if word == LABEL and option is None and self._request.label is None:
            near = f"use --label NAME, --label-file FILE or --stratify none; {near}"
        elif word == DOMAIN and option is None and self._request.domain is None:
            near = f"use --domain NAME or --domain-file FILE; {near}"
        return InputError(f"there is no column {word!r} in {where}", hint=near)
