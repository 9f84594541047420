"""Programs of every kind, each exported once per process."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

from tests.support.lowering import export, finish, lower, lower_case
from tests.support.models import Function
from trt_et.engines import EngineBuilder


@functools.cache
def program(name: str) -> bytes:
    """``split`` (two engines and a CPU operator), ``dynamic``, ``rtx``, ``foreign``, ``xnnpack``,
    ``cpu`` (no backend)."""
    return _MAKERS[name]()


def torch_tensorrt_serialization() -> ModuleType:
    """Torch-TensorRT's own module, without its package, whose import would register a backend."""
    found = importlib.util.find_spec("torch_tensorrt")
    path = Path(found.origin).parent / "executorch" / "serialization.py"
    spec = importlib.util.spec_from_file_location("torch_tensorrt_serialization", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _ForeignBuilder(EngineBuilder):
    """Blobs as Torch-TensorRT's backend writes them."""

    name = "foreign"

    def build(self, request: Any) -> bytes:
        theirs = torch_tensorrt_serialization()
        bindings = [
            theirs.TensorRTIOBinding(name=b.name, is_input=b.is_input)
            for b in request.program.bindings
        ]
        metadata = theirs.TensorRTBlobMetadata(io_bindings=bindings, device_id=2)
        return bytes(theirs.serialize_engine(b"their engine", metadata))


def _dynamic() -> bytes:
    size = torch.export.Dim("size", min=1, max=8)
    module = Function(lambda x: torch.relu(x) + 1)
    return lower(torch.export.export(module, (torch.ones(2, 4),), dynamic_shapes=(({0: size},),)))


_MAKERS = {
    "split": lambda: lower_case("split", excluded_ops=[torch.ops.aten.cumsum], device="cuda:1"),
    "dynamic": _dynamic,
    "rtx": lambda: lower_case("order", builder="tensorrt_rtx"),
    "foreign": lambda: lower_case("order", builder=_ForeignBuilder()),
    "xnnpack": lambda: bytes(finish(export("mlp"), XnnpackPartitioner()).buffer),
    "cpu": lambda: bytes(finish(export("mlp")).buffer),
}
