"""Whether models chosen on such splits do better."""
