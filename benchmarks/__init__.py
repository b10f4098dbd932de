"""Measurements; see docs/benchmarks.md."""
