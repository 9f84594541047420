"""Passes from exported program to exported program, run before partitioning.

Each takes a program as ``torch.export`` returns it, and does not change it. It returns a new
program, or the same one if that has nothing to replace.
"""
