"""Makes an ONNX model of a module of plain ATen, with the bindings' names, weights outside."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from crc32c import crc32c
from torch.fx import GraphModule

from trt_et.blob.model import Binding
from trt_et.conversion.onnx.cache_update import add_cache_update_function
from trt_et.conversion.onnx.check import check_model
from trt_et.conversion.onnx.grouped_weights import pack_grouped_weights
from trt_et.conversion.onnx.rewrites import prepare_module
from trt_et.conversion.onnx.translate import OPSET, quiet, translate
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.errors import ConversionError
from trt_et.graph.symbolic_shapes import size_names
from trt_et.graph.tensor_bytes import bytes_of

_INLINE: Final = 1024
"""Initializers of fewer bytes are in the model itself."""

_FOLDED: Final = 1024
"""Bytes of the largest tensors that are computed now."""

_PREFIX: Final = "trt_et_onnx_"


@dataclass(frozen=True)
class OnnxModel:
    """An ONNX model and the weights that its initializers refer to, by key."""

    proto: Any  # An onnx.ModelProto.
    weights: Mapping[str, torch.Tensor]

    @property
    def opset(self) -> int:
        """Return the version of ONNX's operators."""
        return next(int(entry.version) for entry in self.proto.opset_import if not entry.domain)

    def to_bytes(self) -> bytes:
        """Return the serialized model."""
        return bytes(self.proto.SerializeToString(deterministic=True))


def convert_module(
    module: GraphModule,
    inputs: Sequence[Binding],
    outputs: Sequence[Binding],
    key_of: Callable[[str, torch.Tensor], str],
    aliased_outputs: Sequence[InPlaceBuffer] = (),
    library: str | None = None,
) -> OnnxModel:
    """Convert a module to an ONNX model. The arguments are as in ``network.convert_module``.

    ``key_of`` returns the key of a large constant, from its name and value. ``library`` is the only
    engine library that reads the model; None: all of them may.

    Raises:
        ConversionError: A call has no translation, or TensorRT's ONNX parser does not take it.
    """
    import onnx_ir as ir

    names = size_names(module.graph.find_nodes(op="placeholder"))
    prepare_module(module, aliased_outputs, library)
    model, constants = translate(module)
    _set_inputs(model, inputs, constants)
    _set_outputs(model, outputs)
    _tidy(model)
    pack_grouped_weights(model)
    add_cache_update_function(model)
    _describe(model, inputs, outputs, names)
    weights = _move_weights_out(model, key_of)
    proto = ir.to_proto(model)
    check_model(proto, library)
    return OnnxModel(proto, weights)


def weight_key(tensor: torch.Tensor) -> str:
    """Return the key of a contiguous tensor's bytes: their SHA-256 and their CRC-32C, in hex."""
    data = bytes_of(tensor)
    return f"{_PREFIX}{hashlib.sha256(data).hexdigest()}_{crc32c(data):08x}"


def _set_inputs(
    model: Any,  # noqa: ANN401
    inputs: Sequence[Binding],
    constants: Mapping[str, torch.Tensor],
) -> None:
    from onnx_ir.tensor_adapters import TorchTensor

    graph = model.graph
    names = [value.name for value in graph.inputs if value.name not in constants]
    expected = [binding.name for binding in inputs]
    if names != expected:
        raise ConversionError(f"the ONNX model has the inputs {names}; expected {expected}")
    for value in list(graph.inputs):
        if value.name in constants:
            graph.inputs.remove(value)
            value.const_value = TorchTensor(constants[value.name], name=value.name)
            graph.register_initializer(value)


def _set_outputs(model: Any, outputs: Sequence[Binding]) -> None:  # noqa: ANN401
    """Name the outputs; one that is an input, a constant or a second use gets an Identity.

    One of uint8, which is held as float32, gets a Cast.
    """
    import onnx_ir as ir

    graph = model.graph
    results = list(graph.outputs)
    graph.outputs.clear()
    taken: set[Any] = set()
    for result, binding in zip(results, outputs, strict=True):
        name = f"node_{binding.name}"
        node = None
        if binding.dtype == "uint8":
            node = ir.node("Cast", [result], {"to": ir.DataType.UINT8}, name=name)
            node.outputs[0].type = ir.TensorType(ir.DataType.UINT8)
        elif result.producer() is None or result in taken:
            node = ir.node("Identity", [result], name=name)
            node.outputs[0].type = result.type
        if node is not None:
            node.outputs[0].shape = result.shape
            graph.append(node)
            result = node.outputs[0]
        taken.add(result)
        result.name = binding.name
        graph.outputs.append(result)


def _tidy(model: Any) -> None:  # noqa: ANN401
    """Inline functions, drop unused nodes, and remove the locations of the program's source."""
    from onnx_ir.passes import common
    from onnxscript.optimizer import fold_constants

    for function in model.functions.values():
        # They are written for 18, and their operators compute the same up to 20.
        function.graph.opset_imports[""] = OPSET
    if model.functions:
        common.InlinePass()(model)
    # The exporter computes some inputs, such as the axes of a sum; the parser needs constants.
    with quiet():  # It warns of what it cannot fold.
        fold_constants(
            model,
            onnx_shape_inference=False,
            input_size_limit=_FOLDED,
            output_size_limit=_FOLDED,
            should_fold=_should_fold,
        )
    common.RemoveUnusedNodesPass()(model)
    common.ClearMetadataAndDocStringPass()(model)


def _should_fold(node: Any) -> bool | None:  # noqa: ANN401
    """Leave casts to uint8 and large constants alone.

    The parser has no constants of uint8. The folder would store a transposed weight in the model.
    """
    import onnx_ir as ir

    constants = [value.const_value for value in node.inputs if value is not None]
    large = any(held is not None and held.nbytes > _FOLDED for held in constants)
    return False if large or node.outputs[0].dtype == ir.DataType.UINT8 else None


def _describe(
    model: Any,  # noqa: ANN401
    inputs: Sequence[Binding],
    outputs: Sequence[Binding],
    names: Mapping[str, Mapping[int, str]],
) -> None:
    """Describe inputs and outputs as the bindings do; forget the other shapes.

    ``names`` has the names of the inputs' dynamic sizes: TensorRT's parser keeps them.
    """
    import onnx_ir as ir

    for node in model.graph.all_nodes():
        for value in node.outputs:
            value.shape = value.type = None
    bound = zip((*model.graph.inputs, *model.graph.outputs), (*inputs, *outputs), strict=True)
    for value, binding in bound:
        sizes = [
            names.get(binding.name, {}).get(index, f"{binding.name}_{index}") if size < 0 else size
            for index, size in enumerate(binding.shape)
        ]
        value.shape = ir.Shape(sizes)
        dtype = {"float32": "FLOAT", "float64": "DOUBLE"}.get(binding.dtype, binding.dtype.upper())
        value.type = ir.TensorType(ir.DataType[dtype])


def _move_weights_out(
    model: Any,  # noqa: ANN401
    key_of: Callable[[str, torch.Tensor], str],
) -> dict[str, torch.Tensor]:
    """Replace large initializers by references; return the data that they refer to.

    TensorRT's parser takes no data for tensors of different sizes. So a weight stays in the model
    if its bytes equal a weight of another dtype, such as zeros.
    """
    import onnx_ir as ir

    weights: dict[str, torch.Tensor] = {}
    for value in model.graph.initializers.values():
        held = value.const_value
        tensor = held.raw
        if held.nbytes < _INLINE or not isinstance(tensor, torch.Tensor):
            continue
        key = key_of(value.name, tensor)
        if weights.setdefault(key, tensor).dtype != tensor.dtype:
            continue
        value.const_value = ir.ExternalTensor(
            key, 0, tensor.nbytes, held.dtype, shape=held.shape, name=value.name
        )
    return weights


def references(model: bytes) -> dict[str, str]:
    """Return the keys that the initializers of a serialized model refer to, by their names."""
    import onnx

    proto = onnx.ModelProto.FromString(model)
    return {
        tensor.name: entry.value
        for tensor in proto.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
