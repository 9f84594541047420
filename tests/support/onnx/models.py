"""ONNX payloads as ``builder="onnx"`` writes them: a model, and its weights by their keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from crc32c import crc32c
from onnx import TensorProto, helper

# Of the tensors that `scaled` and `linear` have.
BATCH = [1, 2, 4]
TENSORS: list[tuple[str, list[Any], bool]] = [("x", [BATCH, 8], True), ("y", [BATCH, 8], False)]


@dataclass
class Payload:
    """A model with its inputs and outputs, as `provider_table.Tensor` takes them."""

    model: bytes
    tensors: list[tuple[str, list[Any], bool]]
    weights: dict[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path, **case: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(self.model)
        for name, data in self.weights.items():
            (folder / name).write_bytes(data)
        described = {"model": "model.onnx", "tensors": self.tensors, "weights": [*self.weights]}
        (folder / "case.json").write_text(json.dumps(described | case))
        return folder / "case.json"


def external(name: str, values: np.ndarray[Any, Any]) -> tuple[onnx.TensorProto, str, bytes]:
    """Return an initializer with external data, its key, and its bytes."""
    data = values.tobytes()
    key = f"trt_et_onnx_{hashlib.sha256(data).hexdigest()}_{crc32c(data):08x}"
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(values.dtype))
    tensor.dims.extend(values.shape)
    tensor.data_location = TensorProto.EXTERNAL
    for entry, value in (("location", key), ("offset", "0"), ("length", str(len(data)))):
        tensor.external_data.add(key=entry, value=value)
    return tensor, key, data


def _model(nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], plan: str = "") -> bytes:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "network", values[:1], values[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], doc_string=plan)
    model.ir_version = 9
    return bytes(model.SerializeToString())


def linear() -> Payload:
    """Return relu(x W): what TensorRT itself builds."""
    values = np.random.default_rng(0).standard_normal((8, 8), dtype=np.float32)
    weight, key, data = external("W", values)
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="activation"),
    ]
    return Payload(_model(nodes, [weight]), TENSORS, {key: data})


def scaled(factor: float = 3.0, more: str = "") -> Payload:
    """Return factor * x, with a plan for the fake TensorRT (tensorrt_fake/builder.h).

    ``more`` are further lines of the plan.
    """
    weight, key, data = external("W", np.full(256, factor, dtype=np.float32))
    plan = "fake\ninput x float32 -1,8\noutput y float32 -1,8\nscale_by y x W\n" + more + "end\n"
    node = helper.make_node("Mul", ["x", "W"], ["y"], name="scale")
    return Payload(_model([node], [weight], plan), TENSORS, {key: data})
