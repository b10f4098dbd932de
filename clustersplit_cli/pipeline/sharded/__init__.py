"""The sharded engine: rows on disk or on a cluster, read one shard at a time."""
