"""The search: from many starts to one split, or one partition into parts."""
