"""Torch-TensorRT's converters: which operators they take, and networks built with them.

The one place that imports ``torch_tensorrt``, and the one that uses private parts of it
(``TRTInterpreter._construct_trt_network_def`` and ``._populate_trt_builder_config``;
``tests/builders/test_converters.py`` fails loudly when a release changes them).

Torch-TensorRT asks the CUDA device about itself when it is imported and expects its C++ runtime.
Neither is needed to fill a TensorRT network, so where there is no GPU both questions are answered
for it while it works (:func:`_without_gpu`); nothing stays patched afterwards.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cache
from typing import Any, Final
from unittest import mock

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, GraphModule, Node

from trt_et.builders.protocol import BuildOptions, BuildRequest
from trt_et.engine_info import Binding
from trt_et.errors import BuilderError, OptionError
from trt_et.lowering import DTYPE_NAMES, LoweredPartition

__all__ = [
    "Network",
    "build_network",
    "convertible_operators",
    "decomposed_operators",
    "is_importable",
    "make_refusal",
]

_DTYPES: Final = {name: dtype for dtype, name in DTYPE_NAMES.items()}
_log = logging.getLogger(__name__)


class _DeclaredDevice:
    """What Torch-TensorRT asks of a GPU that is not there; no engine depends on the answers."""

    name = "declared by trt-et"
    major, minor = 8, 9
    total_memory = 24 << 30
    multi_processor_count = 1


@contextlib.contextmanager
def _without_gpu() -> Iterator[None]:
    """Answer Torch-TensorRT's questions about the GPU where there is none."""
    if torch.cuda.is_available():
        yield
        return
    with contextlib.ExitStack() as stack:
        device = _DeclaredDevice()
        answers: dict[str, Callable[..., Any]] = {
            "get_device_capability": lambda *_: (device.major, device.minor),
            "get_device_properties": lambda *_: device,
            "current_device": lambda: 0,
        }
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        if not hasattr(torch._C, "_CudaDeviceProperties"):
            stack.enter_context(
                mock.patch.object(torch._C, "_CudaDeviceProperties", _DeclaredDevice, create=True)
            )
        yield


@contextlib.contextmanager
def _without_runtime() -> Iterator[None]:
    """Import Torch-TensorRT in its own "no C++ runtime" configuration.

    ``libtorchtrt.so`` links to libtorch's CUDA part, which a CPU build of torch does not have, and
    whether the file exists is how Torch-TensorRT decides.
    """
    real = os.path.isfile

    def isfile(path: Any) -> bool:  # noqa: ANN401
        return "libtorchtrt" not in os.path.basename(str(path)) and real(path)  # noqa: PTH119

    with mock.patch.object(os.path, "isfile", isfile):
        yield


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Drop one warning that Torch-TensorRT's logging of node inputs repeats by the dozen."""
    log = logging.getLogger("torch_tensorrt.dynamo.conversion.converter_utils")

    def wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith("Detected unparsable type in node formatting")

    log.addFilter(wanted)
    try:
        yield
    finally:
        log.removeFilter(wanted)


@cache
def _torch_tensorrt() -> Any:  # noqa: ANN401
    """Import Torch-TensorRT, quietly, and return it.

    Raises:
        BuilderError: It is installed but cannot be imported.
    """
    said = io.StringIO()
    vendor_log = logging.getLogger("torch_tensorrt")
    level = vendor_log.level
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(said))
            if not torch.cuda.is_available():
                stack.enter_context(_without_gpu())
                stack.enter_context(_without_runtime())
                # It complains of the missing GPU and of optional packages (modelopt).
                vendor_log.setLevel(logging.CRITICAL)
            import torch_tensorrt
            import torch_tensorrt.dynamo
    except Exception as error:
        # Any failure of a third party's import; the cause goes along.
        raise BuilderError(
            f"Torch-TensorRT is installed but cannot be imported: {error}. It printed: "
            f"{said.getvalue().strip() or 'nothing'}"
        ) from error
    finally:
        vendor_log.setLevel(level)
        if said.getvalue():
            _log.debug("importing torch_tensorrt printed: %s", said.getvalue().strip())
    return torch_tensorrt


def is_importable() -> bool:
    """Whether the converters can be used here; logs why not."""
    try:
        _torch_tensorrt()
    except BuilderError as error:
        _log.warning("%s", error)
        return False
    return True


def _registry(settings: Any) -> Any:  # noqa: ANN401
    """The process-wide converter registry, set to ``settings`` (they leak between compilations)."""
    _torch_tensorrt()
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    DYNAMO_CONVERTERS.set_compilation_settings(settings)
    return DYNAMO_CONVERTERS


def _settings(**options: Any) -> Any:  # noqa: ANN401
    trt = _torch_tensorrt()
    from torch_tensorrt.dynamo._settings import CompilationSettings

    known = {field.name for field in fields(CompilationSettings)}
    unknown = sorted(set(options) - known)
    if unknown:
        close = get_close_matches(unknown[0], known, n=3)
        raise OptionError(
            f"{unknown[0]!r} is no field of Torch-TensorRT's CompilationSettings"
            + (f"; did you mean {' or '.join(close)}?" if close else "")
        )
    chosen = {"min_block_size": 1, "device": trt.Device(gpu_id=0), **options}
    return CompilationSettings(**chosen)


@cache
def decomposed_operators() -> dict[OpOverload, Callable[..., Any]]:
    """Torch-TensorRT's decompositions of the operators that it has no converter for."""
    _torch_tensorrt()
    from torch_tensorrt.dynamo.lowering import get_decompositions

    with _without_gpu():
        table = get_decompositions()
        convertible = _registry(_settings()).unique_targets()
    return {
        op: function
        for op, function in table.items()
        if isinstance(op, OpOverload) and op not in convertible
    }


def convertible_operators() -> frozenset[Any]:
    """The operators that have a converter."""
    with _without_gpu():
        return frozenset(_registry(_settings()).unique_targets())


def make_refusal(options: BuildOptions) -> Callable[[Node], str | None]:
    """The function that says why the converters do not take a node of a plain ATen graph.

    Raises:
        OptionError: A setting is unknown.
    """
    with _without_gpu():
        settings = _settings(**options.settings)

    def refusal(node: Node) -> str | None:
        with _without_gpu():
            registry = _registry(settings)
            reason = _refusal(registry, node)
            if reason is None or node.target not in decomposed_operators():
                return reason
            return _refusal_of_decomposition(registry, node)

    return refusal


def _refusal(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    found = registry.get(node)
    if found is None:
        known = registry.get_unvalidated(node.target) is not None
        return (
            "Torch-TensorRT's converters do not take these arguments"
            if known
            else "Torch-TensorRT has no converter for it"
        )
    _, _, traits = found
    if traits.get("requires_output_allocator"):
        return "its output shape depends on data, which an ExecuTorch delegate cannot return"
    if traits.get("requires_native_multidevice"):
        return "it communicates between devices"
    return None


def _refusal_of_decomposition(registry: Any, node: Node) -> str | None:  # noqa: ANN401
    parts = _decompose(node)
    if parts is None:
        return "Torch-TensorRT's decomposition of it does not apply here"
    for part in parts[0].graph.nodes:
        if part.op == "call_function":
            reason = _refusal(registry, part)
            if reason is not None:
                return f"its decomposition holds {part.target}: {reason}"
    return None


def _decompose(node: Node) -> tuple[GraphModule, list[Node]] | None:
    """The decomposition of one node, and the nodes that its placeholders stand for."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    tensors: list[Node] = []

    def number(argument: Node) -> Node:
        if argument not in tensors:
            tensors.append(argument)
        return argument

    torch.fx.map_arg((node.args, node.kwargs), number)
    values = [tensor.meta.get("val") for tensor in tensors]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return None
    # A constructor has no tensor arguments; its result knows the fake mode as well.
    fakes = [v for v in (*values, node.meta.get("val")) if isinstance(v, FakeTensor)]
    mode = fakes[0].fake_mode if fakes else FakeTensorMode()

    def call(*flat: torch.Tensor) -> Any:  # noqa: ANN401
        known = dict(zip(tensors, flat, strict=True))
        args = torch.fx.map_arg(node.args, lambda n: known[n])
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: known[n])
        return node.target(*args, **kwargs)  # type: ignore[operator]

    try:
        with mode:
            traced = make_fx(call, decomposition_table=decomposed_operators())(*values)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        _log.debug("decomposing %s failed: %s", node, error)
        return None
    return traced, tensors


@dataclass
class Network:
    """A filled TensorRT network, ready to build.

    Attributes:
        trt: The TensorRT bindings (``tensorrt`` or ``tensorrt_rtx``).
        builder: ``trt.Builder``.
        network: ``trt.INetworkDefinition``.
        config: ``trt.IBuilderConfig``.
        interpreter: Owner of the weights' memory: keep it until the engine is built.
    """

    trt: Any
    builder: Any
    network: Any
    config: Any
    interpreter: Any

    def serialize(self, partition: str) -> memoryview:
        """Build the engine; the view owns its memory.

        Raises:
            BuilderError: TensorRT refused.
        """
        host = self.builder.build_serialized_network(self.network, self.config)
        if host is None:
            raise BuilderError(
                f"TensorRT built no engine for partition {partition}; its log says why"
            )
        return memoryview(host).cast("B")


def build_network(
    request: BuildRequest,
    rewrites: Sequence[Callable[[GraphModule], None]] = (),
) -> Network:
    """Fill a TensorRT network with one partition.

    Args:
        request: The partition; its placeholders become the network's inputs, by name.
        rewrites: Applied to the plain ATen graph, constants as attributes, before it is converted.

    Raises:
        OptionError: ``request.options.settings`` has an unknown field.
        BuilderError: A converter failed, or the network's inputs and outputs are not the
            partition's.
    """
    with _without_gpu(), _quietly():
        level = {"optimization_level": request.options.optimization_level}
        settings = _settings(**level, **request.options.settings)
        module = _module_for_converters(request.lowered, rewrites, settings)
        interpreter = _interpret(module, request, settings)
        config = interpreter._populate_trt_builder_config()
    import tensorrt  # Torch-TensorRT's alias of the flavour that it uses.

    _check_names(interpreter, request)
    return Network(tensorrt, interpreter.builder, interpreter.ctx.net, config, interpreter)


def _interpret(module: GraphModule, request: BuildRequest, settings: Any) -> Any:  # noqa: ANN401
    from trt_et.builders.interpreter import PartitionInterpreter

    outputs = request.lowered.outputs
    try:
        interpreter = PartitionInterpreter(
            module,
            [_input(binding) for binding in request.lowered.inputs],
            output_dtypes=[_DTYPES[binding.dtype] for binding in outputs],
            compilation_settings=settings,
        )
        interpreter._construct_trt_network_def()
    except Exception as error:
        # Converters raise whatever they meet; the cause goes along.
        node = getattr(locals().get("interpreter"), "_cur_node_name", None)
        raise BuilderError(
            f"Torch-TensorRT could not convert partition {request.partition}"
            + (f" at node {node}" if node else "")
            + f": {type(error).__name__}: {error}"
        ) from error
    return interpreter


def _check_names(interpreter: Any, request: BuildRequest) -> None:  # noqa: ANN401
    found = [*interpreter._input_names, *interpreter._output_names]
    expected = [binding.name for binding in request.lowered.bindings]
    if found != expected:
        raise BuilderError(
            f"partition {request.partition}: the network has the bindings {found}; "
            f"expected {expected}"
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
) -> GraphModule:
    """The partition as Torch-TensorRT lowers it, its constants as attributes."""
    from torch_tensorrt.dynamo.lowering import post_lowering

    module = _unlift(lowered.program)
    for node in list(module.graph.nodes):
        if node.op == "call_function" and node.target in decomposed_operators():
            _inline_decomposition(module, node)
    module.recompile()
    for rewrite in rewrites:
        rewrite(module)
    lowered_module: GraphModule = post_lowering(module, settings)
    return lowered_module


def _inline_decomposition(module: GraphModule, node: Node) -> None:
    parts = _decompose(node)
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


def _unlift(program: ExportedProgram) -> GraphModule:
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
