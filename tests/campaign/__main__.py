"""Runs the campaign: `python -m tests.campaign --seconds 600`, or one case again: `--kind K --case N`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from tests.campaign.runner import main

    sys.exit(main())
