"""`--config`: the options of an earlier run, in place of defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from clustersplit_cli.errors import UsageError

_TEXTS = (
    "label",
    "domain",
    "id",
    "rounding",
    "kernel",
    "standardize",
    "effort",
    "solver",
    "certify",
    "bound",
    "keep_together",
    "parts",
    "engine",
)
_PATHS = ("label_file", "domain_file", "metadata", "force_train", "force_val")
_LISTS = ("columns", "stratify", "exclude", "format")
_INTEGERS = ("degree", "restarts", "max_iter", "seed", "label_bins", "passes")
_NUMBERS = ("holdout", "gamma", "nystrom")
_REPEATABLE_NUMBERS = ("tolerance",)
_FLAGS = ("drop_invalid",)
_NULLABLE = (
    *("label", "domain", "id", "gamma", "degree", "label_bins", "keep_together", "parts", "passes"),
    *_PATHS,
)
REPLAYED = (*_TEXTS, *_PATHS, *_LISTS, *_INTEGERS, *_NUMBERS, *_REPEATABLE_NUMBERS, *_FLAGS)
"""What says how to split; memory and threads belong to the machine, and where to write to the run."""

OF_FOLDS = (*REPLAYED, "k")
"""The same for folds."""

# An option given on the command line also overrules what is only another way to say the same.
_RIVALS = {
    "label": ("label_file",),
    "label_file": ("label",),
    "domain": ("domain_file",),
    "domain_file": ("domain",),
}
# What a default became. A column of the default name need not exist in another file.
_RESOLVED_DEFAULTS = {
    ("solver", "selection"): "auto",
    ("solver", "highs"): "auto",
    ("solver", "transport"): "auto",
    ("solver", "exchange"): "auto",
    ("engine", "local"): "auto",
    ("label", "label"): None,
    ("domain", "domain"): None,
}
_OF_THE_KERNEL = ("gamma", "degree", "nystrom")


def with_earlier_options(
    context: typer.Context, config: Path | None, names: Iterable[str] = REPLAYED
) -> dict[str, Any]:
    """The command's options, and where the user gave none, those of an earlier run with the given names."""
    given = dict(context.params)
    if config is None:
        return given
    said = {name for name in given if was_said(context, name)}
    earlier = _read(config)
    overruled = {rival for name in said for rival in _RIVALS.get(name, ())}
    if "kernel" in said and given["kernel"] != earlier.get("kernel"):
        overruled.update(_OF_THE_KERNEL)
    for name in names:
        if name in earlier and name not in said | overruled:
            given[name] = _as_option(name, earlier[name], config)
    return given


def was_said(context: typer.Context, name: str) -> bool:
    """Whether the user gave the option, be it with its default's value."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _read(config: Path) -> Mapping[str, Any]:
    from clustersplit_cli.reports.json_report import load_report

    try:
        text = config.read_text(encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
    except UnicodeDecodeError:
        reason = "it is not UTF-8 text"
    else:
        options: Mapping[str, Any] = load_report(text, source=str(config))["config"]
        return options
    raise UsageError(f"--config {config} cannot be read: {reason}", hint="name the report.json of a run")


def _as_option(name: str, value: Any, config: Path) -> Any:
    """Undo what resolving did to an option: numbers back to text, paths back to paths."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits = {
        _TEXTS: isinstance(value, str),
        _PATHS: isinstance(value, str),
        _LISTS: is_list,
        (*_INTEGERS, "k"): is_number and isinstance(value, int),
        _NUMBERS: is_number or isinstance(value, str),
        _FLAGS: isinstance(value, bool),
        _REPEATABLE_NUMBERS: is_number or isinstance(value, str) or is_list,
    }
    fitting = any(fit for names, fit in fits.items() if name in names)
    if not fitting and not (value is None and name in _NULLABLE):
        raise UsageError(
            f"--config {config}: {value!r} is no value for {name}",
            hint=f"give --{name.replace('_', '-')} on the command line, or an unchanged report.json",
        )
    if value is None or name in (*_LISTS, *_FLAGS, *_INTEGERS, "k"):
        return value
    if name in _REPEATABLE_NUMBERS:
        return value if is_list else [str(value)]
    if name in _PATHS:
        return Path(value)
    return _RESOLVED_DEFAULTS.get((name, value), str(value))


def replayed_options(options: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The options of an earlier run, as the command line gives them; what it had not is left out."""
    return {
        name: _as_option(name, options[name], source) for name in OF_FOLDS if options.get(name) is not None
    }
