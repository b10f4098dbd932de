"""Checking a split: everything is recomputed from the input, the index files and the configuration."""
