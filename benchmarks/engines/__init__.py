"""What engines do in a call, next to those of other ways: P29 to P33 of the project's goals."""
