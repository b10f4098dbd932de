"""Files in, a validated `Dataset` out; no Arrow module is imported before the first file is opened."""

from clustersplit_cli.data.readers.facade import column_names, load, load_target, peek, survey

__all__ = ["column_names", "load", "load_target", "peek", "survey"]
