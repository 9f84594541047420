"""One lock for what only one thread may do at a time.

Tracing graphs (fake modes, symbolic shapes), Torch-TensorRT's converter registry, and the answers
given in a GPU's place (``vendor.without_gpu``) are state of the whole process. Building an engine,
which takes the time, needs none of them and runs outside of the lock.
"""

from __future__ import annotations

import threading
from typing import Final

__all__ = ["TRACING"]

TRACING: Final = threading.RLock()
