"""How good the splits are that the search finds."""
