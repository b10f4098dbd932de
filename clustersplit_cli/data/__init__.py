"""Rows in, indices out."""
