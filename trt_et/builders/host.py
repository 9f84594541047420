"""Facts of the machine that builds."""

from __future__ import annotations

import platform
import sys

__all__ = ["target_platform"]


def target_platform() -> str:
    """Operating system and processor, as Torch-TensorRT names them: ``linux_x86_64``."""
    return f"{sys.platform}_{platform.machine().lower()}"
