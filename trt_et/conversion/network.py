"""Fills a TensorRT network with a partition, by Torch-TensorRT's converters.

It calls private parts of ``TRTInterpreter`` (``_construct_trt_network_def`` and
``_populate_trt_builder_config``): its ``run()`` ends by deserializing the engine, which needs a
GPU. ``tests/conversion/test_network.py`` fails loudly when a release changes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from trt_et.blob.model import Alias, Binding
from trt_et.conversion.decompose import decomposed_from
from trt_et.conversion.failures import failure_of, without_objects
from trt_et.conversion.operators.caches import check_cache_updates
from trt_et.conversion.rewriting import prepare_module
from trt_et.conversion.settings import make_settings
from trt_et.conversion.torch_tensorrt_import import logged_errors, torch_tensorrt
from trt_et.conversion.torch_tensorrt_patches import (
    constants_stay_small,
    without_gpu,
    without_registry_checks,
)
from trt_et.engine_program.in_place_buffers import InPlaceBuffer
from trt_et.engine_program.program import (
    DTYPE_NAMES,
    EngineProgram,
    ProfileShapes,
    unlift,
)
from trt_et.errors import BuilderError, ConversionError
from trt_et.options import BuildOptions

# TensorRT's messages end with the line of its sources that logged them.
_SOURCE_LINE: Final = re.compile(r"\.?\s+In \w+ at \S+:\d+\)?$")
_DTYPES: Final = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass
class Network:
    """A filled TensorRT network, ready to build.

    Attributes:
        trt: The TensorRT bindings (``tensorrt`` or ``tensorrt_rtx``).
        builder: ``trt.Builder``.
        network: ``trt.INetworkDefinition``.
        config: ``trt.IBuilderConfig``.
        interpreter: Owns the weights' memory; keep it until the engine is built.
        aliases: The outputs that it writes into an input's memory.
    """

    trt: Any
    builder: Any
    network: Any
    config: Any
    interpreter: Any
    aliases: tuple[Alias, ...] = ()

    def free(self) -> None:
        """Drop TensorRT's objects; ``aliases`` stays."""
        self.builder = self.network = self.config = self.interpreter = None


def convert_partition(
    partition: str, program: EngineProgram, options: BuildOptions, library: str
) -> Network:
    """Fill a TensorRT network with one partition, whose name is for messages.

    ``library`` is the engine library, by its builder's name; some rewrites are for one alone.

    Raises:
        OptionError: ``options.torch_tensorrt_settings`` has an unknown field.
        BuilderError: A converter failed, or the network's inputs and outputs are not the
            partition's.
    """
    with without_gpu():
        settings = make_settings(**options.compilation_settings())
        try:
            network = convert_module(
                unlift(program.exported),
                program.inputs,
                program.outputs,
                settings,
                library,
                names=program.names,
                profiles=program.profiles,
                aliased_outputs=program.aliased_outputs,
            )
        except ConversionError as error:
            raise BuilderError(
                f"Torch-TensorRT could not convert partition {partition}"
                + (f" at node {error.node}" if error.node else "")
                + f": {error.reason}. Leave the node to the CPU (excluded_ops=...)"
            ) from error
        network.config = network.interpreter._populate_trt_builder_config()
    return network


def convert_module(
    module: GraphModule,
    inputs: Sequence[Binding],
    outputs: Sequence[Binding],
    settings: Any,  # noqa: ANN401
    library: str,
    *,
    names: Mapping[str, str],
    profiles: Sequence[ProfileShapes] = (),
    aliased_outputs: Sequence[InPlaceBuffer] = (),
) -> Network:
    """Fill a TensorRT network with a module; call it ``without_gpu``.

    Args:
        module: Plain ATen, constants as attributes; changed.
        inputs: The network's inputs, by the names of the module's placeholders.
        outputs: The network's outputs.
        settings: Torch-TensorRT's ``CompilationSettings``.
        library: See ``convert_partition``.
        names: For nodes of the module, by name, the names that errors use.
        profiles: The optimization profiles; none: one, of the inputs' ranges.
        aliased_outputs: The outputs that may be written into an input's memory.

    Returns:
        The network; its ``config`` is None.

    Raises:
        ConversionError: A call cannot be converted, or an output has another shape.
    """
    torch_tensorrt()
    import tensorrt  # Torch-TensorRT's alias of the library that it uses.

    from trt_et.conversion.interpreter import PartitionInterpreter

    interpreter: Any = None
    with logged_errors() as logged, constants_stay_small(), without_registry_checks():
        try:
            prepared, aliases = prepare_module(module, library, settings, aliased_outputs)
            _check_ranks(prepared, tensorrt.Dims.MAX_DIMS)
            interpreter = PartitionInterpreter(
                prepared,
                [_input(binding) for binding in inputs],
                output_dtypes=[_DTYPES[binding.dtype] for binding in outputs],
                compilation_settings=settings,
            )
            interpreter._construct_trt_network_def()
            _take_zero_as_a_size(interpreter.ctx.net, tensorrt)
            if profiles:
                interpreter.optimization_profiles = _profiles(interpreter.builder, profiles)
            _check_bindings(interpreter, inputs, outputs)
            check_cache_updates(interpreter.ctx.net, aliases)
        except ConversionError as error:
            node_name = names.get(error.node or "", error.node)
            raise ConversionError(error.reason, node_name) from error
        except Exception as error:
            # Converters raise any exception.
            node = getattr(interpreter, "_cur_node", None)
            reason = _vendor_reason(logged, error, node)
            raise ConversionError(reason, _source_name(node, names)) from error
    network = interpreter.ctx.net
    return Network(tensorrt, interpreter.builder, network, None, interpreter, aliases)


def _take_zero_as_a_size(network: Any, trt: Any) -> None:  # noqa: ANN401
    """Let computed shapes have a size of 0: by default, TensorRT replaces 0 by an input's size."""
    for number in range(network.num_layers):
        layer = network.get_layer(number)
        if layer.type == trt.LayerType.SHUFFLE and layer.num_inputs > 1:
            layer.__class__ = trt.IShuffleLayer
            layer.zero_is_placeholder = False


def _check_ranks(module: GraphModule, limit: int) -> None:
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dim() > limit:
            raise ConversionError(
                f"a tensor of it has {value.dim()} dimensions; TensorRT's have {limit} at most",
                decomposed_from(node),
            )


def _vendor_reason(logged: Sequence[str], error: Exception, node: Node | None) -> str:
    """Return TensorRT's first message before a converter failed, else the converter's own."""
    for message in logged:
        if "catchCudaError" not in message:  # TensorRT looks for a GPU after each error.
            return without_objects(_SOURCE_LINE.sub("", message))
    is_call = node is not None and node.op == "call_function"
    who = f"Torch-TensorRT's converter of {node.target}" if node and is_call else "Torch-TensorRT"
    return failure_of(who, error)


def _source_name(node: Node | None, names: Mapping[str, str]) -> str | None:
    """Return the name of the call that a node was made of, or of the nearest call before it."""
    queue = [node] if node is not None else []
    seen = set(queue)
    for candidate in queue:
        name = decomposed_from(candidate)
        if name in names:
            return names[name]
        new = [source for source in candidate.all_input_nodes if source not in seen]
        seen.update(new)
        queue += new
    return None


def _profiles(builder: Any, profiles: Sequence[ProfileShapes]) -> list[Any]:  # noqa: ANN401
    made = []
    for shapes in profiles:
        profile = builder.create_optimization_profile()
        for name, (low, opt, high) in shapes.items():
            profile.set_shape(name, low, opt, high)
        made.append(profile)
    return made


def _check_bindings(
    interpreter: Any,  # noqa: ANN401
    inputs: Sequence[Binding],
    outputs: Sequence[Binding],
) -> None:
    names = [*interpreter._input_names, *interpreter._output_names]
    expected = [binding.name for binding in (*inputs, *outputs)]
    if names != expected:
        raise ConversionError(
            f"the network has the bindings {names}; expected {expected}. Install a version of "
            "Torch-TensorRT that trt-et supports"
        )
    results = interpreter.module.graph.output_node().args[0]
    for index, binding in enumerate(outputs):
        shape = tuple(interpreter.ctx.net.get_output(index).shape)
        if len(shape) != len(binding.shape) or any(
            -1 not in (have, want) and have != want
            for have, want in zip(shape, binding.shape, strict=True)
        ):
            raise ConversionError(
                f"Torch-TensorRT's converters made a tensor of shape {shape}; expected "
                f"{tuple(binding.shape)}",
                decomposed_from(results[index]),
            )


def _input(binding: Binding) -> Any:  # noqa: ANN401
    from torch_tensorrt import Input

    dtype = _DTYPES[binding.dtype]
    if binding.is_dynamic:
        return Input(
            min_shape=binding.min_shape,
            opt_shape=binding.opt_shape,
            max_shape=binding.max_shape,
            dtype=dtype,
        )
    return Input(shape=binding.shape, dtype=dtype)
