"""Runs ONNX payloads by onnxruntime on the CPU, and parses them by TensorRT-RTX's own parser."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import torch
from executorch.exir._serialize._program import deserialize_pte_binary

from trt_et.blob.codec import decode_blob
from trt_et.blob.model import EngineInfo
from trt_et.engine_program.program import EngineProgram
from trt_et.engines.base import BuildRequest
from trt_et.engines.onnx import OnnxBuilder
from trt_et.graph.tensor_bytes import bytes_of
from trt_et.inspection import inspect_program


@dataclass(frozen=True)
class Payload:
    """An ONNX payload: the blob's metadata, the model, and its weights by key."""

    info: EngineInfo
    model: bytes
    weights: Mapping[str, bytes]

    @classmethod
    def of(cls, blob: bytes | memoryview, weights: Mapping[str, bytes]) -> Payload:
        decoded = decode_blob(blob)
        return cls(decoded.info, bytes(decoded.engine), weights)

    @property
    def proto(self) -> onnx.ModelProto:
        return onnx.ModelProto.FromString(self.model)

    def with_weights(self) -> onnx.ModelProto:
        proto = self.proto
        for tensor in proto.graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries:
                tensor.raw_data = self.weights[entries["location"]]
                tensor.ClearField("external_data")
                tensor.ClearField("data_location")
        return proto

    def save(self, folder: Path) -> Path:
        """Write the model and its weights, each a file that the model refers to."""
        for key, data in self.weights.items():
            (folder / key).write_bytes(data)
        path = folder / "model.onnx"
        path.write_bytes(self.model)
        return path

    def session(self) -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        # What the model says, not what an optimizer makes of it.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = 1
        model = self.with_weights().SerializeToString()
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def run(
        self, inputs: Sequence[torch.Tensor], session: ort.InferenceSession | None = None
    ) -> list[torch.Tensor]:
        """Run the model on inputs in the order of its bindings, none of them of bfloat16."""
        outputs = [binding.name for binding in self.info.outputs]
        found = (session or self.session()).run(outputs, self._arrays(inputs))
        return [_tensor(np.asarray(array)) for array in found]

    def evaluate(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the model by ONNX's own reference, slowly: it has every operator in every dtype."""
        from onnx.reference import ReferenceEvaluator

        with np.errstate(all="ignore"):
            found = ReferenceEvaluator(self.with_weights()).run(None, self._arrays(inputs))
        return [_tensor(np.asarray(array)) for array in found]

    def _arrays(self, inputs: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        names = [binding.name for binding in self.info.inputs]
        return dict(zip(names, map(_array, inputs), strict=True))


def _array(tensor: torch.Tensor) -> np.ndarray:
    dense = tensor.detach().contiguous()
    if dense.dtype is torch.bfloat16:
        return dense.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return dense.numpy()


def _tensor(array: np.ndarray) -> torch.Tensor:
    array = np.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def of_program(pte: bytes) -> list[Payload]:
    """Return the payloads of a program, with what they refer to in its named data."""
    stored = deserialize_pte_binary(pte).named_data
    entries = stored.pte_data.items() if stored is not None else ()
    data = {key: bytes(stored.buffers[entry.buffer_index]) for key, entry in entries}
    found = []
    for method in inspect_program(pte):
        for delegate in method.delegates:
            payload = Payload.of(delegate.blob, {})
            weights = {key: data[key] for key in payload.info.network["weights"]}
            found.append(Payload(payload.info, payload.model, weights))
    return found


def payload_of(program: EngineProgram, request: BuildRequest) -> Payload:
    builder = OnnxBuilder()
    blob = builder.build(request)
    weights = builder.named_data(program, blob)
    return Payload.of(blob, {key: bytes(bytes_of(value)) for key, value in weights.items()})
