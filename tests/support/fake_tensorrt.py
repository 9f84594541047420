"""Engines for the fake TensorRT library (tests/runtime/tensorrt_fake)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import onnx
import torch

from tests.support.native_blobs import pack
from trt_et.engine_info import Alias, EngineInfo, decode_blob, encode_blob
from trt_et.engines import EngineBuilder
from trt_et.engines.onnx import OnnxBuilder


class FakeBuilder(EngineBuilder):
    """Builds an engine of the fake that computes 2 * x + 1, whatever the partition says.

    ``upstream`` writes the blob as Torch-TensorRT does: no dtypes, shapes, checksum or builder.
    ``plan_version`` begins the engine as TensorRT begins it. ``named_layers`` names layers as
    Torch-TensorRT's converters do. ``host_code`` is in version-compatible engines.
    """

    name = "tensorrt"

    def __init__(
        self,
        *,
        upstream: bool = False,
        alias: bool = False,
        streamable: int = 0,
        version: str = "11.7.3",
        plan_version: tuple[int, int, int, int] | None = None,
        named_layers: bool = False,
        weights: int = 1024,
        host_code: bool = False,
        **info: Any,
    ) -> None:
        self.upstream, self.alias, self.streamable = upstream, alias, streamable
        self.version, self.plan_version = version, plan_version
        self.named_layers, self.weights, self.info = named_layers, weights, info
        self.host_code = host_code

    def plan(self, x: Any, y: Any) -> str:
        def shape(dims: Any) -> str:
            return ",".join(map(str, dims)) or "-"

        lines = f"fake\nweights {self.weights}\nstreamable {self.streamable}\nscratch 256\n"
        lines += f"input {x.name} float32 {shape(x.shape)}\n"
        lines += f"output {y.name} float32 {shape(y.shape)}\n"
        lines += "host_code\n" if self.host_code else ""
        if self.alias:
            lines += f"alias {y.name} {x.name}\n"
        if x.is_dynamic:
            lines += f"range {x.name} {shape(x.min_shape)} {shape(x.opt_shape)} "
            lines += f"{shape(x.max_shape)}\n"
        scale = shift = ""
        if self.named_layers:
            scale = "[ELEMENTWISE]-[aten_ops.mul.Tensor]-[mul_0]"
            shift = "[ELEMENTWISE]-[aten_ops.add.Tensor]-[add_0_sum]+[UNARY]-[aten_ops.x]-[x_0]"
        return lines + f"scale {y.name} {x.name} 2 {scale}\nshift {y.name} {y.name} 1 {shift}\n"

    def build(self, request: Any) -> bytes:
        x, y = request.program.bindings
        plan = self.plan(x, y).encode()
        if self.plan_version:
            plan = b"ftrt".ljust(24, b"\0") + bytes(self.plan_version).ljust(8, b"\0") + plan
        if not self.upstream:
            facts = {"builder": self.name, "library_version": self.version, **self.info}
            return encode_blob(plan, EngineInfo((x, y), request.device_id, **facts))
        document = upstream_document(request)
        if self.alias:
            document["aliased_io"] = [asdict(Alias(y.name, x.name))]
        return pack(document, plan, magic=b"TR02" if self.alias else b"TR01", checksum=False)


def upstream_document(request: Any) -> dict[str, Any]:
    """The metadata of a blob that Torch-TensorRT writes."""
    return {
        "io_bindings": [
            {"name": b.name, "dtype": "", "shape": [], "is_input": b.is_input}
            for b in request.program.bindings
        ],
        "hardware_compatible": False,
        "device_id": request.device_id,
        "serialized_metadata": "",
        "target_platform": "linux_x86_64",
    }


class Line(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2.0 + 1.0


class FakeNetworkBuilder(OnnxBuilder):
    """Makes ONNX networks that also hold the fake's plan of them: y = W x, elementwise.

    Args:
        more: Further lines of the plan (tests/runtime/tensorrt_fake/builder.h).
    """

    def __init__(self, more: str = "") -> None:
        self.more = more

    def fingerprint(self) -> str:
        return ""

    def build(self, request: Any) -> bytes:
        blob = decode_blob(super().build(request))
        model = onnx.ModelProto.FromString(bytes(blob.engine))
        (weight,) = (tensor.name for tensor in model.graph.initializer if tensor.external_data)
        plan = "fake\n"
        for binding in blob.info.bindings:
            shape = ",".join(map(str, binding.shape))
            kind = "input" if binding.is_input else "output"
            plan += f"{kind} {binding.name} {binding.dtype} {shape}\n"
        x, y = (binding.name for binding in blob.info.bindings)
        model.doc_string = f"{plan}scale_by {y} {x} {weight}\n{self.more}end\n"
        return encode_blob(model.SerializeToString(), blob.info)


class Scale(torch.nn.Module):
    """Its weight is one number, often enough to be named data."""

    def __init__(self, factor: float = 3.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((512,), factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight
