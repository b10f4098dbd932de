"""The local engine: all rows in memory, for splits in two and for partitions into any number of parts."""
