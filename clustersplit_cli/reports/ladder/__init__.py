"""A ladder of graded splits: its summary, and its renderings."""
