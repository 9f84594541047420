"""Operators that this package defines or recognises.

``batched_nms`` is one for models: non-maximum suppression that an exported program can contain.
"""

from trt_et.ops.nms import batched_nms

__all__ = ["batched_nms"]
