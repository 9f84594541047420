"""Passes that prepare an exported program for TensorRT, run before partitioning.

Each takes a program as ``torch.export`` returns it, and does not change it. It returns a new
program, or the same one if that has nothing to replace.
"""
