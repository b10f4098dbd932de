"""Does the split choose better models? Domains left out in turn, models chosen on every strategy's split."""
