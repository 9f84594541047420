"""TensorRT as a normal ExecuTorch backend.

::

    from executorch.exir import to_edge_transform_and_lower
    from trt_et import TensorRTPartitioner

    program = to_edge_transform_and_lower(
        torch.export.export(model.eval(), inputs), partitioner=[TensorRTPartitioner()]
    ).to_executorch()

Importing this package imports neither TensorRT nor Torch-TensorRT; both are imported by the builder
that needs them, when it builds.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trt_et.errors import (
    BackendConflictError,
    BlobError,
    BuilderError,
    BuilderUnavailable,
    DeviceIdError,
    OptionError,
    PartitionError,
    PluginError,
    TrtEtError,
    UnsupportedModelError,
)

if TYPE_CHECKING:
    from trt_et.backend import TensorRTBackend
    from trt_et.cli.comparison import compare
    from trt_et.engines.cache import EngineCache
    from trt_et.memory.planning import TensorRTMemoryPlanningPass
    from trt_et.ops.engine_file import EngineFile
    from trt_et.partitioner import TensorRTPartitioner

__version__ = "0.1.0"

__all__ = [
    "BackendConflictError",
    "BlobError",
    "BuilderError",
    "BuilderUnavailable",
    "DeviceIdError",
    "EngineCache",
    "EngineFile",
    "OptionError",
    "PartitionError",
    "PluginError",
    "TensorRTBackend",
    "TensorRTMemoryPlanningPass",
    "TensorRTPartitioner",
    "TrtEtError",
    "UnsupportedModelError",
    "__version__",
    "compare",
]


# The partitioner needs torch and executorch.exir (seconds to import); a process that only runs
# programs needs neither, and ``trt_et.runtime`` and ``trt_et.engine_info`` work without them.
_LAZY = {
    "EngineCache": "trt_et.engines.cache",
    "EngineFile": "trt_et.ops.engine_file",
    "TensorRTBackend": "trt_et.backend",
    "TensorRTMemoryPlanningPass": "trt_et.memory.planning",
    "TensorRTPartitioner": "trt_et.partitioner",
    "compare": "trt_et.cli.comparison",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
