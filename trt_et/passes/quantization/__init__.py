"""Passes for what quantization tools leave in exported programs."""
