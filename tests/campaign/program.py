"""The program in a process of its own that reaches no other machine: `python -m tests.campaign.program`."""

from __future__ import annotations

from tests.campaign.isolation import isolate

if __name__ == "__main__":
    isolate()
    from clustersplit_cli.cli import main

    main()
