"""`--config`: the options of an earlier run, in place of defaults."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clustersplit_cli.cli.declarations import COMMANDS
from clustersplit_cli.cli.options import checked_options, was_said
from clustersplit_cli.cli.request import read_request
from clustersplit_cli.data.destination import REPORT_NAME
from clustersplit_cli.errors import UsageError
from clustersplit_cli.options import OPTIONS, Option
from clustersplit_cli.verification.inputs import features_path, locate_inputs, present, stated_features

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.options import CheckedOptions

# An option given on the command line also overrules what is only another way to say the same.
_RIVALS = {
    "label": ("label_file",),
    "label_file": ("label",),
    "domain": ("domain_file",),
    "domain_file": ("domain",),
    "severity": ("at_mmd",),
    "at_mmd": ("severity",),
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
PATHS_OF_INPUT = ("label_file", "domain_file", "metadata", "force_train", "force_val")
_OF_THE_KERNEL = ("gamma", "degree", "nystrom")


def with_earlier_options(
    context: typer.Context, config: Path | None, also: Iterable[str] = ()
) -> dict[str, Any]:
    """The command's options, and where the user gave none, those of an earlier run.

    Parameters
    ----------
    also : options of the earlier run that the command itself has not.
    """
    if config is None:
        if context.params["features"] is None:
            raise UsageError(
                "missing argument 'FEATURES'", hint="name a file, or an earlier run with --config REPORT"
            )
        return dict(context.params)
    from clustersplit_cli.verification.recorded import read_report

    return with_options_of(read_report(config), context, config, also)


def with_options_of(
    report: Mapping[str, Any], context: typer.Context, source: Path, also: Iterable[str]
) -> dict[str, Any]:
    """The same from a report that was read; `source` is where."""
    given, earlier = dict(context.params), report["config"]
    said = {name for name in given if was_said(context, name)}
    overruled = {rival for name in said for rival in _RIVALS.get(name, ())}
    if "kernel" in said and given["kernel"] != earlier.get("kernel"):
        overruled.update(_OF_THE_KERNEL)
    for name in [*given, *also]:
        if name in OPTIONS and OPTIONS[name].is_replayed and name in earlier and name not in said | overruled:
            given[name] = _as_option(OPTIONS[name], earlier[name], source)
    if given["features"] is None:
        given["features"] = stated_features(source.parent, report, "FEATURES")
    for name in PATHS_OF_INPUT:
        if given.get(name) is not None and name not in said:
            given[name] = present(source.parent, given[name], OPTIONS[name].flag)
    target = given.get("target")
    if target is not None and "target" not in said and not target.startswith("domain="):
        given["target"] = str(present(source.parent, Path(target), "--target"))
    return given


def _as_option(option: Option, value: Any, config: Path) -> Any:
    """Undo what resolving did to an option: numbers back to text, paths back to paths."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_list = isinstance(value, list) and all(isinstance(item, str) for item in value)
    fits = {
        "text": isinstance(value, str),
        "path": isinstance(value, str),
        "texts": is_list,
        "integer": is_number and isinstance(value, int),
        "number": is_number or isinstance(value, str),
        "flag": isinstance(value, bool),
        "numbers": is_number or isinstance(value, str) or is_list,
    }
    may_be_null = option.default is None and option.kind not in ("texts", "numbers") and not option.words
    if not fits[option.kind] and not (value is None and may_be_null):
        raise UsageError(
            f"--config {config}: {value!r} is no value for {option.name}",
            hint=f"give {option.flag} on the command line, or an unchanged report.json",
        )
    if value is None or option.kind in ("texts", "flag", "integer"):
        return value
    if option.kind == "numbers":
        return value if is_list else [str(value)]
    if option.kind == "path":
        return Path(value)
    return _RESOLVED_DEFAULTS.get((option.name, value), str(value))


def replayed_options(options: Mapping[str, Any], source: Path) -> dict[str, Any]:
    """The options of an earlier run, as the command line gives them; what it had not is left out."""
    return {
        option.name: _as_option(option, options[option.name], source)
        for option in OPTIONS.values()
        if option.is_replayed and options.get(option.name) is not None
    }


COMPANIONS = ("label_file", "domain_file", "metadata")


@dataclass(frozen=True)
class EarlierRun:
    """How a run was made, so that parts of it can be made again.

    Attributes
    ----------
    request : what to read, from where it is now.
    stated_features : the features as the report names them.
    """

    options: CheckedOptions
    request: ReadRequest
    stated_features: Path


def earlier_run(directory: Path, report: Mapping[str, Any], given: Mapping[str, Any]) -> EarlierRun:
    """Take the options from a report.

    Parameters
    ----------
    given : `features` and the companions where the user says they are, `memory` and `threads`.

    Raises
    ------
    UsageError : an option of the report has a value that cannot be used.
    InputError : the input is nowhere.
    """
    unsaid = dict.fromkeys(("columns", "label", "domain", "stratify", "exclude", "id", *COMPANIONS))
    earlier = {
        **unsaid,
        "drop_invalid": False,
        "impute": "none",
        "distances": False,
        **replayed_options(report["config"], directory / REPORT_NAME),
        "memory": given["memory"],
        "threads": given["threads"],
    }
    options = checked_options(earlier)
    moved = {name: given[name] for name in ("features", *COMPANIONS)}
    request = locate_inputs(directory, report, read_request(Path(), earlier), moved)
    stated = request.path if given["features"] else features_path(report)
    return EarlierRun(options, request, stated)


# Defaults that a report spells out.
_DEFAULTS = {"format": ["npy"], "stratify": ["label,domain"], "tolerance": ["0.0"], "severity": "1"}


def reproducing_command(report: Mapping[str, Any], features: Path, directory: Path) -> str:
    """Spell out the command that makes a run again, quoted for a POSIX shell, with all but default options.

    Rules such as `--gamma scale` appear as the numbers they gave.
    """
    config = report["config"]
    strategy, several = config.get("strategy"), config.get("n_splits")
    if several is not None:
        given = [*_flags("split", replayed_options(config, directory)), "--n-splits", str(several)]
        return shlex.join(["clustersplit", "split", str(features), *given, "--out", str(directory.parent)])
    own = "split" if config.get("k") is None else "kfold"
    name, *subject = [own] if strategy is None else ["baseline", strategy]
    flags = _flags(name, {**replayed_options(config, directory), "leave": config.get("leave")})
    return shlex.join(["clustersplit", name, *subject, str(features), *flags, "--out", str(directory)])


def _flags(command: str, options: Mapping[str, Any]) -> Iterator[str]:
    (declared,) = [known for known in COMMANDS if known.name == command]
    for option in declared.options:
        value = options.get(option.name)
        if value is None or value == [] or _is_default(option, value):
            continue
        if option.kind == "flag":
            yield option.flag
        else:
            for item in value if isinstance(value, list) else [value]:
                yield from (option.flag, str(item))


def _is_default(option: Option, value: Any) -> bool:
    default = _DEFAULTS.get(option.name, option.default)
    try:
        return bool(float(value) == float(default))  # 0.0 is how a report writes 0
    except (TypeError, ValueError):
        return bool(value == default)
