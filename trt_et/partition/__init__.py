"""Which Edge nodes are delegated, how they are grouped, and why the others are not."""
