"""The command that makes the split of a report again, spelled out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clustersplit_cli.cli.replay import replayed_options

# Defaults that a report spells out.
_DEFAULTS = {"format": ["npy"], "stratify": ["label,domain"], "tolerance": ["0.0"]}


def reproducing_command(report: Mapping[str, Any], features: Path, directory: Path) -> str:
    """Spell out the command that makes a run again, quoted for a POSIX shell, with all but default options.

    Rules such as `--gamma scale` appear as the numbers they gave.
    """
    config = report["config"]
    strategy = config.get("strategy")
    own = "split" if config.get("k") is None else "kfold"
    name, *subject = [own] if strategy is None else ["baseline", strategy]
    flags = _flags(name, {**replayed_options(config, directory), "leave": config.get("leave")})
    return shlex.join(["clustersplit", name, *subject, str(features), *flags, "--out", str(directory)])


def _flags(command: str, options: Mapping[str, Any]) -> Iterator[str]:
    from typer.main import get_command

    from clustersplit_cli.cli.app import app

    program: Any = get_command(app)
    for parameter in program.commands[command].params:
        if parameter.param_type_name == "argument":
            continue
        value = options.get(parameter.name)
        if value is None or value == [] or _is_default(parameter, value):
            continue
        flag = parameter.opts[0]
        if parameter.is_flag:
            yield flag
        else:
            for item in value if isinstance(value, list) else [value]:
                yield from (flag, str(item))


def _is_default(parameter: Any, value: Any) -> bool:
    default = _DEFAULTS.get(parameter.name, parameter.default)
    try:
        return bool(float(value) == float(default))  # 0.0 is how a report writes 0
    except (TypeError, ValueError):
        return bool(value == default)
