"""Writes the table."""

from pathlib import Path


def write(folder: Path) -> None:
    """Write it."""
