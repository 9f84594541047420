"""The engine blob: the bytes that a delegate carries, and what they mean. Imports no torch."""
