"""What a split must meet: cells, quotas, tolerances, families, groups."""
