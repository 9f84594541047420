"""A partition as a TensorRT network, filled by Torch-TensorRT's converters.

The one place that uses private parts of Torch-TensorRT (``TRTInterpreter``'s
``_construct_trt_network_def`` and ``_populate_trt_builder_config``): its ``run()`` ends by
deserializing the engine, which needs a GPU. ``tests/conversion/test_network.py`` fails loudly when
a release changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node

from trt_et.builders.base import BuildRequest
from trt_et.builders.monitor import BuildMonitor, interruptible
from trt_et.conversion.rewrites.adaptive_pool_and_resize import resample_as_torch_does
from trt_et.conversion.rewrites.attention_mask import attend_to_nothing_as_torch_does
from trt_et.conversion.rewrites.embedding_bag import reduce_equal_bags
from trt_et.conversion.rewrites.index_put import (
    choose_by_mask,
    put_by_one_index,
    state_written_values,
)
from trt_et.conversion.rewrites.instance_norm import normalize_by_own_statistics
from trt_et.conversion.rewrites.integer_division import divide_exactly
from trt_et.conversion.rewrites.kv_cache_update import update_in_place
from trt_et.conversion.rewrites.log_softmax import subtract_logarithms
from trt_et.conversion.rewrites.negative_indices import count_from_zero
from trt_et.conversion.rewrites.pooling import pool_over_the_edge
from trt_et.conversion.rewrites.quantize import keep_weights_int8, split_fake_quantize
from trt_et.conversion.rewrites.rank_promotion import add_missing_dimensions
from trt_et.conversion.rewrites.reshape import state_known_sizes
from trt_et.conversion.rewrites.scatter import scatter_as_much_as_indexed
from trt_et.conversion.rewrites.scatter_reduce import add_whole_rows
from trt_et.conversion.rewrites.type_promotion import promote_as_torch_does
from trt_et.conversion.support import decompose, decomposed_operators, make_settings
from trt_et.conversion.torch_tensorrt_import import logged_errors, quietly, without_gpu
from trt_et.engine_info import Alias, Binding
from trt_et.errors import BuilderError
from trt_et.graph.tracing import forget_pending_symbols
from trt_et.lowering.edge_to_aten import describe_value
from trt_et.lowering.lower import DTYPE_NAMES, LoweredPartition

__all__ = ["Network", "build_network", "unlift"]

_DECOMPOSED_FROM: Final = "trt_et_decomposed_from"
_DTYPES: Final = {name: dtype for dtype, name in DTYPE_NAMES.items()}


@dataclass
class Network:
    """A filled TensorRT network, ready to build.

    Attributes:
        trt: The TensorRT bindings (``tensorrt`` or ``tensorrt_rtx``).
        builder: ``trt.Builder``.
        network: ``trt.INetworkDefinition``.
        config: ``trt.IBuilderConfig``.
        interpreter: Owner of the weights' memory: keep it until the engine is built.
        aliases: The outputs that it writes into an input's memory.
    """

    trt: Any
    builder: Any
    network: Any
    config: Any
    interpreter: Any
    aliases: tuple[Alias, ...] = ()

    def serialize(
        self,
        partition: str,
        write: Callable[[bytes | memoryview], int],
        monitor: BuildMonitor | None = None,
        device: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Build the engine and hand its bytes over, in pieces where this TensorRT can stream.

        Ctrl-C, and ``monitor``, stop it at TensorRT's next step.

        Args:
            partition: The partition's name, for messages.
            write: Takes the pieces in order; what it raises ends the build and is raised here.
            monitor: Follows the build.
            device: Entered by the thread that builds; chooses its GPU.

        Raises:
            BuilderError: TensorRT refused.
            BuildCancelled: The monitor stopped it.
        """
        from trt_et.builders.tensorrt_monitor import TensorRTMonitor

        monitor = monitor or BuildMonitor()
        monitor.check()
        listener = TensorRTMonitor(monitor)  # Kept until the build is over; TensorRT does not.
        self.config.progress_monitor = listener
        built = False

        def build() -> None:
            nonlocal built
            with device():
                built = self._build(write)

        with logged_errors() as errors:
            interruptible(build, monitor.cancel)
        monitor.check()
        if not built:
            raise BuilderError(
                f"TensorRT built no engine for partition {partition}: "
                + (errors[0] if errors else "it does not say why")
            )

    def _build(self, write: Callable[[bytes | memoryview], int]) -> bool:
        if hasattr(self.trt, "IStreamWriter"):
            return self._stream(write)
        host = self.builder.build_serialized_network(self.network, self.config)
        if host is not None:
            write(memoryview(host).cast("B"))
        return host is not None

    def _stream(self, write: Callable[[bytes | memoryview], int]) -> bool:
        failures: list[BaseException] = []

        class Writer(self.trt.IStreamWriter):  # type: ignore[name-defined]
            def write(self, piece: bytes) -> int:
                try:
                    return 0 if failures else write(piece)
                except BaseException as error:
                    # Nothing may be thrown through TensorRT, Ctrl-C included.
                    failures.append(error)
                    return 0

        built = self.builder.build_serialized_network_to_stream(self.network, self.config, Writer())
        if failures:
            raise failures[0]
        return bool(built)


def build_network(
    request: BuildRequest,
    rewrites: Sequence[Callable[[GraphModule], None]] = (),
) -> Network:
    """Fill a TensorRT network with one partition.

    Args:
        request: The partition; its placeholders become the network's inputs, by name.
        rewrites: Applied to the plain ATen graph, constants as attributes, before it is converted,
            behind those that any TensorRT wants.

    Raises:
        OptionError: ``request.options.settings`` has an unknown field.
        BuilderError: A converter failed, or the network's inputs and outputs are not the
            partition's.
    """
    with without_gpu(), quietly():
        level = {"optimization_level": request.options.optimization_level}
        settings = make_settings(**level, **request.options.settings)
        module, aliases = _module_for_converters(request.lowered, rewrites, settings)
        interpreter = _interpret(module, request, settings)
        config = interpreter._populate_trt_builder_config()
    import tensorrt  # Torch-TensorRT's alias of the flavour that it uses.

    from trt_et.conversion.converters.kv_cache_update import check_cache_updates

    _check_bindings(interpreter, request)
    check_cache_updates(interpreter.ctx.net, aliases)
    return Network(tensorrt, interpreter.builder, interpreter.ctx.net, config, interpreter, aliases)


def _interpret(module: GraphModule, request: BuildRequest, settings: Any) -> Any:  # noqa: ANN401
    from trt_et.conversion.interpreter import PartitionInterpreter

    outputs = request.lowered.outputs
    try:
        interpreter = PartitionInterpreter(
            module,
            [_input(binding) for binding in request.lowered.inputs],
            output_dtypes=[_DTYPES[binding.dtype] for binding in outputs],
            compilation_settings=settings,
        )
        interpreter._construct_trt_network_def()
        if request.lowered.profiles:
            interpreter.optimization_profiles = _profiles(interpreter.builder, request.lowered)
    except Exception as error:
        # Converters raise whatever they meet; the cause goes along.
        node = getattr(locals().get("interpreter"), "_cur_node", None)
        raise BuilderError(
            f"Torch-TensorRT could not convert partition {request.partition}"
            + (f" at node {_original_name(node, request.lowered)}" if node else "")
            + f": {type(error).__name__}: {error}"
        ) from error
    return interpreter


def _profiles(builder: Any, lowered: LoweredPartition) -> list[Any]:  # noqa: ANN401
    profiles = []
    for shapes in lowered.profiles:
        profile = builder.create_optimization_profile()
        for name, (low, opt, high) in shapes.items():
            profile.set_shape(name, low, opt, high)
        profiles.append(profile)
    return profiles


def _original_name(node: Node, lowered: LoweredPartition) -> str:
    """The name that a node, or the one that it was decomposed from, has in the user's program."""
    return lowered.names.get(node.meta.get(_DECOMPOSED_FROM, node.name), node.name)


def _check_bindings(interpreter: Any, request: BuildRequest) -> None:  # noqa: ANN401
    found = [*interpreter._input_names, *interpreter._output_names]
    expected = [binding.name for binding in request.lowered.bindings]
    if found != expected:
        raise BuilderError(
            f"partition {request.partition}: the network has the bindings {found}; "
            f"expected {expected}"
        )
    network = interpreter.ctx.net
    for index, binding in enumerate(request.lowered.outputs):
        shape = tuple(network.get_output(index).shape)
        if len(shape) != len(binding.shape) or any(
            -1 not in (have, want) and have != want
            for have, want in zip(shape, binding.shape, strict=True)
        ):
            raise BuilderError(
                f"partition {request.partition}: Torch-TensorRT's converters made {binding.name} "
                f"of shape {shape}; expected {tuple(binding.shape)}. Keep the operator that it "
                "comes from out of the engine (torch_executed_ops)"
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


def _module_for_converters(
    lowered: LoweredPartition,
    rewrites: Sequence[Callable[[GraphModule], None]],
    settings: Any,  # noqa: ANN401
) -> tuple[GraphModule, tuple[Alias, ...]]:
    """The partition as Torch-TensorRT lowers it, its constants as attributes.

    Also the outputs that it writes into an input's memory.
    """
    from torch_tensorrt.dynamo.lowering import post_lowering

    from trt_et.conversion.converters.kv_cache_update import has_cache_update_layer
    from trt_et.conversion.converters.quantize import weights_stay_quantized

    forget_pending_symbols(lowered.program)
    module = unlift(lowered.program)
    choose_by_mask(module)
    state_written_values(module)
    subtract_logarithms(module)
    reduce_equal_bags(module)
    add_whole_rows(module)
    aliases = update_in_place(module, lowered.updates) if has_cache_update_layer() else ()
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in decomposed_operators():
            _inline_decomposition(module, node)
    module.recompile()
    ours = (
        attend_to_nothing_as_torch_does,
        promote_as_torch_does,
        divide_exactly,
        normalize_by_own_statistics,
        resample_as_torch_does,
        pool_over_the_edge,
        add_missing_dimensions,
        scatter_as_much_as_indexed,
        count_from_zero,
        put_by_one_index,
        state_known_sizes,
        keep_weights_int8,
        split_fake_quantize,
    )
    for rewrite in (*ours, *rewrites):
        rewrite(module)
    for node in module.graph.nodes:
        describe_value(node)
    with weights_stay_quantized():
        lowered_module: GraphModule = post_lowering(module, settings)
    return lowered_module, aliases


def _inline_decomposition(module: GraphModule, node: Node) -> None:
    parts = decompose(node)
    if parts is None:
        raise BuilderError(f"{node.target} at node {node.name} could not be decomposed")
    decomposed, tensors = parts
    inputs = iter(tensors)
    new: dict[Node, Node] = {}
    with module.graph.inserting_before(node):
        for part in decomposed.graph.nodes:
            if part.op == "placeholder":
                new[part] = next(inputs)
            elif part.op == "get_attr":
                name = f"_constant_{node.name}_{part.target}"
                module.register_buffer(name, getattr(decomposed, str(part.target)))
                new[part] = module.graph.get_attr(name)
            elif part.op == "call_function":
                new[part] = module.graph.node_copy(part, lambda n: new[n])
                new[part].meta[_DECOMPOSED_FROM] = node.name
    output = next(part for part in decomposed.graph.nodes if part.op == "output")
    result = output.args[0]
    if isinstance(result, Node):
        node.replace_all_uses_with(new[result])
    else:
        for user in list(node.users):
            picked = result[user.args[1]]
            user.replace_all_uses_with(new[picked])
            module.graph.erase_node(user)
    module.graph.erase_node(node)


def unlift(program: ExportedProgram) -> GraphModule:
    """A module that holds the lifted tensors themselves, without copies of them."""
    values = LoweredPartition(program, (), ()).constants
    root = torch.nn.Module()
    graph = Graph()
    nodes: dict[Node, Node] = {}
    custom = [s for s in program.graph_signature.input_specs if s.kind is InputKind.CUSTOM_OBJ]
    if custom:
        raise BuilderError(f"custom object {custom[0].target} cannot go into an engine")
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in values:
            name = f"_constant_{node.name}"
            root.register_buffer(name, values[node.name].detach())
            nodes[node] = graph.get_attr(name)
            nodes[node].meta = dict(node.meta)
        else:
            nodes[node] = graph.node_copy(node, lambda n: nodes[n])
    graph.lint()
    return GraphModule(root, graph)
