"""Whether the workers of a cluster run what this process runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from clustersplit_cli import __version__
from clustersplit_cli.errors import ClusterError

Note = tuple[str, str]


def versions() -> dict[str, str]:
    """Versions of what the results depend on."""
    from importlib.metadata import version

    return {"clustersplit": __version__, **{name: version(name) for name in ("numpy", "pyarrow")}}


def check_versions(client: Any, addresses: Iterable[str]) -> tuple[Note, ...]:
    """Compare the versions of this process with those of some workers.

    Raises
    ------
    ClusterError
        If a worker has another version of this program, or none.
    """
    own = versions()
    try:
        found: dict[str, dict[str, str]] = client.run(versions, workers=list(addresses))
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"the workers do not have clustersplit {own['clustersplit']}: {error}",
            hint=f"install it on every worker: pip install clustersplit=={own['clustersplit']}",
        ) from error
    notes = []
    for address, theirs in sorted(found.items()):
        if theirs["clustersplit"] != own["clustersplit"]:
            raise ClusterError(
                f"worker {address} has clustersplit {theirs['clustersplit']}, this process has "
                f"{own['clustersplit']}",
                hint="install the same version everywhere",
            )
        differing = [f"{name} {theirs[name]}, not {own[name]}" for name in own if theirs[name] != own[name]]
        if differing:
            notes.append(
                (
                    "versions_differ",
                    f"worker {address} has {', '.join(differing)}: results may differ in the last digits",
                )
            )
    return tuple(notes)
