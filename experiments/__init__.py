"""Studies of the paper and beyond."""
