"""The engine blob: the bytes that a delegate carries, and their meaning. Imports no torch."""
