"""One summary of a run; JSON and terminal only render it."""
