"""Passes from exported program to exported program, run before partitioning."""
