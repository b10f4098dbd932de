"""The report of `mmd`: its summary, and its table in the terminal."""
