"""Checks which calls of plain ATen can be an ONNX model, by converting them."""

from __future__ import annotations

from trt_et.conversion.onnx.model import convert_module
from trt_et.engine_program.lower_fragment import lower_fragment
from trt_et.errors import BuilderError, ConversionError
from trt_et.graph.fragment import Fragment, SupportCheck, Unsupported
from trt_et.graph.symbolic_shapes import UnboundedDimension
from trt_et.graph.tracing import unchanged_by_tracing
from trt_et.ops.quantize import QUANTIZED_DTYPES, moves_numbers


def make_support_check() -> SupportCheck:
    """Return a function that returns why calls of a plain ATen graph cannot be converted."""

    def check(fragment: Fragment) -> Unsupported | None:
        if _moves_a_quantized_weight(fragment):
            return None
        with unchanged_by_tracing(fragment.nodes):
            try:
                lowered = lower_fragment(fragment)
                convert_module(
                    lowered.module,
                    lowered.inputs,
                    lowered.outputs,
                    lambda name, _: name,  # To read a weight would take memory.
                )
            except ConversionError as error:
                name = lowered.names.get(error.node or "", error.node)
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
