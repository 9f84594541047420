"""A partition as a TensorRT network, filled by Torch-TensorRT's converters.

The one file that uses private parts of Torch-TensorRT (``TRTInterpreter``'s
``_construct_trt_network_def`` and ``_populate_trt_builder_config``): its ``run()`` ends by
deserializing the engine, which needs a GPU. ``tests/conversion/test_network.py`` fails loudly when
a release changes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from torch.fx import GraphModule

from trt_et.blob.model import Alias, Binding
from trt_et.conversion.decompose import decomposed_from
from trt_et.conversion.prepare import prepare_module
from trt_et.conversion.settings import make_settings
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.errors import BuilderError
from trt_et.lowering.lowered_partition import DTYPE_NAMES, LoweredPartition
from trt_et.options import BuildOptions

__all__ = ["Network", "convert_partition"]

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


def convert_partition(
    partition: str, lowered: LoweredPartition, options: BuildOptions, library: str
) -> Network:
    """Fill a TensorRT network with one partition.

    Args:
        partition: Its name, for messages.
        lowered: The partition; its placeholders become the network's inputs, by name.
        options: What the caller asked of the engine.
        library: The engine library, by its builder's name; some rewrites are for one alone.

    Raises:
        OptionError: ``options.settings`` has an unknown field.
        BuilderError: A converter failed, or the network's inputs and outputs are not the
            partition's.
    """
    with without_gpu():
        settings = make_settings(**options.compilation_settings())
        module, aliases = prepare_module(lowered, library, settings)
        interpreter = _interpret(module, partition, lowered, settings)
        config = interpreter._populate_trt_builder_config()
    import tensorrt  # Torch-TensorRT's alias of the library that it uses.

    from trt_et.conversion.converters.kv_cache_update import check_cache_updates

    _check_bindings(interpreter, partition, lowered)
    check_cache_updates(interpreter.ctx.net, aliases)
    return Network(tensorrt, interpreter.builder, interpreter.ctx.net, config, interpreter, aliases)


def _interpret(
    module: GraphModule,
    partition: str,
    lowered: LoweredPartition,
    settings: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    from trt_et.conversion.interpreter import PartitionInterpreter

    try:
        interpreter = PartitionInterpreter(
            module,
            [_input(binding) for binding in lowered.inputs],
            output_dtypes=[_DTYPES[binding.dtype] for binding in lowered.outputs],
            compilation_settings=settings,
        )
        interpreter._construct_trt_network_def()
        if lowered.profiles:
            interpreter.optimization_profiles = _profiles(interpreter.builder, lowered)
    except Exception as error:
        # Converters raise whatever they meet; the cause goes along.
        node = getattr(locals().get("interpreter"), "_cur_node", None)
        raise BuilderError(
            f"Torch-TensorRT could not convert partition {partition}"
            + (f" at node {lowered.names.get(decomposed_from(node), node.name)}" if node else "")
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


def _check_bindings(interpreter: Any, partition: str, lowered: LoweredPartition) -> None:  # noqa: ANN401
    found = [*interpreter._input_names, *interpreter._output_names]
    expected = [binding.name for binding in lowered.bindings]
    if found != expected:
        raise BuilderError(
            f"partition {partition}: the network has the bindings {found}; expected {expected}. "
            "Install a version of Torch-TensorRT that trt-et supports"
        )
    network = interpreter.ctx.net
    for index, binding in enumerate(lowered.outputs):
        try:
            shape = tuple(network.get_output(index).shape)
        except (ValueError, RuntimeError) as error:  # TensorRT-RTX 1.5, and 1.6.
            raise BuilderError(
                f"partition {partition}: TensorRT cannot compute the shape of {binding.name}; "
                f"expected {tuple(binding.shape)}. Keep the operator that it comes from out of the "
                "engine (excluded_ops=...)"
            ) from error
        if len(shape) != len(binding.shape) or any(
            -1 not in (have, want) and have != want
            for have, want in zip(shape, binding.shape, strict=True)
        ):
            raise BuilderError(
                f"partition {partition}: Torch-TensorRT's converters made {binding.name} "
                f"of shape {shape}; expected {tuple(binding.shape)}. Keep the operator that it "
                "comes from out of the engine (excluded_ops=...)"
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
