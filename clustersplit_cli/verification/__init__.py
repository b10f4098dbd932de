"""Checking a split: everything is recomputed from the input, the index files and the configuration."""

from clustersplit_cli.verification.inputs import locate_inputs
from clustersplit_cli.verification.run import Claim, verify_run, verify_split

__all__ = ["Claim", "locate_inputs", "verify_run", "verify_split"]
