"""The passes over an exported program before it is decomposed and partitioned, in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch.export import ExportedProgram
from torch.fx import Node

from trt_et import mends
from trt_et.options import BuildOptions
from trt_et.partition.node_choice import NodeChoice
from trt_et.passes.batch_norms import fold_batch_norms
from trt_et.passes.cache_layout import lay_out_caches
from trt_et.passes.fold_constants import fold_constants
from trt_et.passes.grouped_query_attention import share_heads
from trt_et.passes.lift_torch_tensorrt_engines import lift_torch_tensorrt_engines
from trt_et.passes.llama_operators import replace_llama_operators
from trt_et.passes.positions_as_tensors import keep_positions_in_tensors
from trt_et.passes.quantization.lower_quantizers import lower_quantize_ops
from trt_et.passes.rms_norm import RMS_NORM, use_rms_norm

Pass = Callable[[ExportedProgram], ExportedProgram]

PASSES: Final[tuple[Pass, ...]] = (
    *mends.FIRST,
    replace_llama_operators,  # ExecuTorch's own operators for CPUs.
    keep_positions_in_tensors,  # A number that depends on data stays on the CPU.
    lay_out_caches,  # TensorRT writes along the third of four dimensions.
    share_heads,  # Repeated keys and values are eight operators a layer.
    use_rms_norm,  # A normalization that is written out is six operators.
    *mends.LAST,
    fold_constants,  # TensorRT lacks the dtypes that they are computed in.
    lift_torch_tensorrt_engines,  # Engines in the program become constants.
)


def run_passes(
    program: ExportedProgram,
    excluded: NodeChoice,
    float32_ops: NodeChoice,
    options: BuildOptions,
) -> ExportedProgram:
    """Run all passes on a copy of a program as ``torch.export`` returns it.

    Quantize operators that engines with these options cannot hold are computed in floats.

    Raises:
        PartitionError: An engine in the program cannot be lifted.
    """
    # The caller may name operators that these remove.
    chosen = excluded, float32_ops
    is_skipped: dict[Pass, bool] = {
        share_heads: any(each.has_names for each in chosen),
        use_rms_norm: any(each.may_name_parts_of(RMS_NORM) for each in chosen),
    }
    if not options.debug_outputs:  # Their results are those of the model's operators.

        def is_kept(node: Node) -> bool:
            return any(choice.reason(node) is not None for choice in chosen)

        program = fold_batch_norms(program, is_kept, write_out=options.precision is not None)
    for each in PASSES:
        if not is_skipped.get(each):
            program = each(program)
    return lower_quantize_ops(program, excluded, options)
