"""Files in, a validated `Dataset` out; no Arrow module is imported before the first file is opened."""

from clustersplit_cli.data.readers.facade import load, peek, survey

__all__ = ["load", "peek", "survey"]
