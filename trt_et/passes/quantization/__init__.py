"""Passes for the operators that quantization tools add to programs."""
