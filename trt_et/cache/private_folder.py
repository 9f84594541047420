"""Folders of the user's own: what is read from them is run."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["make_private", "others_may_write"]

_WRITABLE_BY_OTHERS = 0o022


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone.

    Raises:
        OSError: It cannot be made.
    """
    if folder.is_dir():
        return
    make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def others_may_write(folder: Path) -> bool:
    """Whether a folder is another user's, or open to others; False where there is none."""
    try:
        status = folder.stat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return False
    return status.st_uid != os.getuid() or bool(status.st_mode & _WRITABLE_BY_OTHERS)
