"""What `clustersplit evaluate` reports: a summary, and its renderings."""
