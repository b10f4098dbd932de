"""`clustersplit mmd`: groups of rows, what is measured between them, and the report on it."""
