"""Messages of the command line in the words of Python."""

from __future__ import annotations

import re
from collections.abc import Mapping

from clustersplit_cli.options import OPTIONS

PYTHON_NAMES = {
    "seed": "random_state",
    "holdout": "h",
    "keep_together": "groups",
    "label": "y",
    "domain": "domains",
    "out": "directory",
    "label_file": "y",
    "domain_file": "domains",
    "strategy": "strategies",
    "jobs": "n_jobs",
}
_WHOLE = {
    "--label NAME, --label-file FILE or --stratify none": "y, or stratify='none'",
    "--label NAME or --label-file FILE": "y",
    "--domain NAME or --domain-file FILE": "domains",
    "leave these rows out with --exclude COLUMN=VALUE": "leave these rows out",
    "those rows out with --exclude COLUMN=VALUE": "those rows out",
    "make the split with --exclude domain=": "make the split without the rows of ",
    ", or use --engine stream on Parquet": ", or split a Parquet file at the command line",
    ", or --engine local": "",
    "use --engine stream": "split a file at the command line",
}
"""Cures that Python callers have another one for."""
_EXCLUDING = re.compile(r" with --exclude \S+=(?=$|[ ,;])")
_FLAG = re.compile(
    r"--([a-z]+(?:-[a-z]+)*)"
    r"( (?P<metavar>[A-Z]{1,8})(?![A-Za-z]))?"
    r"(?: (?P<value>'[^']*'|(?!--)[^\s;]+))?"
)
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?")
_SIZE = re.compile(r"[0-9.]+(?:[KMGT]i?)?B")
_WORDS = {
    "gamma": ("scale", "1/d", "median", "power"),
    "nystrom": ("auto", "off"),
    "tolerance": ("auto",),
    "stratify": ("none",),
    "label_bins": ("auto",),
    "keep_together": ("exact-duplicates",),
}
"""Words besides numbers and names."""
_SWITCHES = ("resume", "rerun", "refit")
"""Flags of single commands."""
_NAMES = {
    "stratify": re.compile(r"[A-Za-z_]\w*(?:,[A-Za-z_]\w*)+"),
    "parts": re.compile(r"[^\s=,]+=[0-9.]+(?:,[^\s=,]+=[0-9.]+)*"),
}


def python_words(text: str, names: Mapping[str, str] | None = None) -> str:
    """Name parameters and their values as Python does.

    Parameters
    ----------
    text : a message or a hint.
    names : what parameters are called where that is not the usual name.

    >>> python_words("raise --max-iter, try --h 0.3 or use --standardize zscore")
    "raise max_iter, try h=0.3 or use standardize='zscore'"
    """
    for words, instead in _WHOLE.items():
        text = text.replace(words, instead)
    text = _EXCLUDING.sub("", text)
    return _FLAG.sub(lambda match: _named(match, names or {}), text)


def _named(match: re.Match[str], names: Mapping[str, str]) -> str:
    """One flag, and the word after it: a value, if the option takes it, or the text that goes on."""
    option = "holdout" if match[1] == "h" else match[1].replace("-", "_")
    name = names.get(option, PYTHON_NAMES.get(option, option))
    told = match["value"] or ""
    known = OPTIONS.get(option)
    value = told.rstrip(",.:")
    is_value = not match["metavar"] and _is_value(option, value)
    if option in _SWITCHES or (known is not None and known.kind == "flag"):
        name += "=True"
    elif is_value:
        shown = value if _NUMBER.fullmatch(value) or value.startswith("'") else repr(value)
        return f"{name}={shown}{told[len(value) :]}"
    return f"{name} {told}".rstrip()


def _is_value(option: str, text: str) -> bool:
    """Whether a word after an option is its value, and not how the sentence goes on."""
    known = OPTIONS.get(option)
    words = (*(known.words if known else ()), *_WORDS.get(option, ()))
    by_pattern = option in _NAMES and _NAMES[option].fullmatch(text)
    is_size = option == "memory" and _SIZE.fullmatch(text)
    return bool(_NUMBER.fullmatch(text) or text in words or by_pattern or is_size or text.startswith("'"))
