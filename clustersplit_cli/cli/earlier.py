"""The options of an earlier run, and where its input is now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustersplit_cli.options import SplitOptions

if TYPE_CHECKING:
    from clustersplit_cli.data.dataset import ReadRequest
    from clustersplit_cli.options import CheckedOptions

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
    from clustersplit_cli.cli.commands.split import read_request
    from clustersplit_cli.cli.replay import replayed_options
    from clustersplit_cli.data.destination import REPORT_NAME
    from clustersplit_cli.options import check_options
    from clustersplit_cli.verification.inputs import features_path, locate_inputs

    unsaid = dict.fromkeys(("columns", "label", "domain", "stratify", "exclude", "id", *COMPANIONS))
    earlier = {
        **unsaid,
        "drop_invalid": False,
        **replayed_options(report["config"], directory / REPORT_NAME),
        "memory": given["memory"],
        "threads": given["threads"],
    }
    names = [field.name for field in fields(SplitOptions) if field.name in earlier]
    options = check_options(SplitOptions(**{name: earlier[name] for name in names}))
    moved = {name: given[name] for name in ("features", *COMPANIONS)}
    request = locate_inputs(directory, report, read_request(Path(), earlier), moved)
    stated = request.path if given["features"] else features_path(report)
    return EarlierRun(options, request, stated)
