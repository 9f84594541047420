"""Operators that this package defines or recognises."""
