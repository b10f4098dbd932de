"""Where the arrays live."""
