"""The commands: one file each, with its options and the order of its steps."""
