"""Converters of our own, one file per operator."""
