"""Equations only: no files, no printing, no command line."""
