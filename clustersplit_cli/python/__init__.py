"""What Python callers use, under the public package `clustersplit`."""
