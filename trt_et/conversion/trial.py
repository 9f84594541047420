"""Checks which calls of plain ATen can be converted, by converting them."""

from __future__ import annotations

from typing import Any, Final

from trt_et.conversion.installed import installed_variant
from trt_et.conversion.network import convert_module
from trt_et.conversion.onnx import model as onnx_model
from trt_et.conversion.settings import converter_registry, make_settings
from trt_et.conversion.stages import refusal_reason
from trt_et.conversion.torch_tensorrt_patches import without_gpu
from trt_et.engine_program.make_fragment_module import FragmentModule, make_fragment_module
from trt_et.errors import BuilderError, ConversionError
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.graph.symbolic_shapes import UnboundedDimension
from trt_et.graph.tracing import unchanged_by_tracing
from trt_et.ops.quantize import QUANTIZED_DTYPES, moves_numbers
from trt_et.options import BuildOptions

# Torch's messages about an index outside of its table, of embeddings and of gathers and scatters,
# and about an integer that is divided by 0.
_WRONG_VALUES: Final = (
    "index out of range in self",
    "is out of bounds for dimension",
    "ZeroDivisionError",
)


def convertible_operators() -> frozenset[Any]:
    """Return the operators that Torch-TensorRT has a converter for."""
    with without_gpu():
        return frozenset(converter_registry(make_settings()).unique_targets())


def try_as_network(options: BuildOptions) -> SupportCheck:
    """Return a function that returns why calls cannot be part of a TensorRT network.

    It converts the calls into a separate network, whose inputs and outputs are the tensors that the
    calls exchange with the rest of the graph. It builds no engine.

    Raises:
        OptionError: A setting is unknown.
    """
    with without_gpu():
        settings = make_settings(**options.compilation_settings())
    library = installed_variant() or ""

    def check(fragment: Fragment) -> Unsupported | None:
        for call in fragment.calls:
            refused = refusal_reason(call)
            if refused is not None:
                return Unsupported(refused, call.name)
        with without_gpu(), unchanged_by_tracing(fragment.nodes):
            try:
                _convert(make_fragment_module(fragment), settings, library)
            except ConversionError as error:
                if _is_of_unknown_values(error, fragment):
                    return None
                return Unsupported(error.reason, error.node)
            except (BuilderError, UnboundedDimension) as error:
                return Unsupported(str(error))
        return None

    return check


def _convert(fragment: FragmentModule, settings: Any, library: str) -> None:  # noqa: ANN401
    module = fragment.module
    try:
        convert_module(
            module, fragment.inputs, fragment.outputs, settings, library, names=fragment.names
        )
    finally:
        # A module and its graph refer to each other: the zeros for unknown weights would stay in
        # memory until Python collects garbage, perhaps after the engine's build.
        for name in dict(module.named_buffers(recurse=False, remove_duplicate=False)):
            delattr(module, name)


def _is_of_unknown_values(error: ConversionError, fragment: Fragment) -> bool:
    """Return whether folding failed because of the substitutes for unknown constants.

    An index that is computed from such values may be outside of its table (buckets of T5, positions
    of Funnel), and a divisor may be 0 (chunks of Llama 4).
    """
    cause = error.__cause__
    return (
        isinstance(cause, IndexError | RuntimeError)
        and any(text in str(cause) for text in _WRONG_VALUES)
        and any(fragment.constants.get(s, s) is None for s in fragment.sources)
    )


def try_as_onnx_model(library: str | None = None) -> SupportCheck:
    """Return a function that returns why calls cannot be part of an ONNX model for a library."""

    def check(fragment: Fragment) -> Unsupported | None:
        if _moves_a_quantized_weight(fragment):
            return None
        with unchanged_by_tracing(fragment.nodes):
            try:
                made = make_fragment_module(fragment)
                onnx_model.convert_module(
                    made.module,
                    made.inputs,
                    made.outputs,
                    lambda name, _: name,  # To read a weight would take memory.
                    library=library,
                )
            except ConversionError as error:
                name = made.names.get(error.node or "", error.node)
                return Unsupported(error.reason, name)
            except (BuilderError, UnboundedDimension) as error:
                return Unsupported(str(error))
        return None

    return check


def _moves_a_quantized_weight(fragment: Fragment) -> bool:
    """Return whether a fragment only moves a weight's numbers, which the conversion does itself."""
    sources = fragment.sources
    return (
        bool(sources)
        and all(map(moves_numbers, fragment.calls))
        and all(source in fragment.constants for source in sources)
        and all(source.meta["val"].dtype in QUANTIZED_DTYPES for source in sources)
    )
