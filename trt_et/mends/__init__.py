"""Mends faults and gaps of torch and ExecuTorch, for any backend; knows no TensorRT.

Each file mends one fault and is named by it. It imports ``graph`` and ``errors`` alone, and only
the partitioner, the backend and the passes import it. To delete a mend: its file, its test in
``tests/mends`` or ``tests/export``, and its lines here.

================== ======================================= =============== =========================
File               Fault                                   Seen with       Delete when
================== ======================================= =============== =========================
check_export       no warning of training mode, loops      ExecuTorch 1.5  ``to_edge`` warns of them
complex_numbers    complex numbers are refused             ExecuTorch 1.5  it has kernels for them
contiguous_        a retrace compares strides, and makes   torch 2.13      ``should_fold`` asks no
products           a number of a dynamic size                              strides
control_flow_      branches share the memory of results    ExecuTorch 1.5  ``_emit_cond`` copies
results
convolution        the choice of a CPU kernel narrows a    torch 2.13      ``_select_conv_backend``
                   range                                                   narrows nothing
copied_buffers     a buffer's copy of another is dropped   ExecuTorch 1.5  it keeps the write
decompose_to_      operators outside of core ATen are      ExecuTorch 1.5  it decomposes them, one
core_aten          refused                                                 function at a time
exact_sizes        ``n**2 // n`` is not ``n``              torch 2.14      torch cancels it
fourier_transforms transforms have no operators; used by  ExecuTorch 1.5  it has kernels for them
                   complex_numbers
guarded_sizes      a lowered program checks no guards      ExecuTorch 1.5  its methods do
indices_of_nonzero indices are read column by column      ExecuTorch 1.5  its kernel writes by
                   (docs/internals/upstream/nonzero.md)                    strides
joined_dtypes      ``cat`` of mixed dtypes is refused      ExecuTorch 1.5  its kernel casts
masked_writes      ``x[mask] = y`` has data-dependent      torch 2.13      it is exported as
                   sizes                                                   ``where``
narrowed_sizes     a narrowed range is not reported        ExecuTorch 1.5  passes narrow none
numbers_of_sizes   roots and extremes of sizes are refused ExecuTorch 1.5  it has these operators
size_remainders    ``%`` of sizes has the dividend's sign  ExecuTorch 1.5  ``executorch_prim::mod``
                                                                           has the divisor's
sized_constants    sizes of constants have no values       torch 2.13      ``torch.export`` computes
                                                                           them
split_to_slices    a split fixes a dynamic size            ExecuTorch 1.5  it reads no length
                   (docs/internals/upstream/
                   executorch_split.md)
strides_of_sizes   there is no ``sym_stride``              ExecuTorch 1.5  there is
unused_checks      cutting a graph with checks fails       ExecuTorch 1.5  it removes checks before
================== ======================================= =============== =========================

Tests that fail once a mend is no longer needed: ``tests/export/test_executorch_workarounds.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from torch.export import ExportedProgram

from trt_et.mends.check_export import (
    check_converted,
    check_values,
    warn_training_mode,
    warn_while_loop,
)
from trt_et.mends.complex_numbers import use_real_numbers
from trt_et.mends.contiguous_products import keep_sizes_of_products
from trt_et.mends.control_flow_results import copy_results_of_control_flow
from trt_et.mends.copied_buffers import copy_buffers_of_buffers
from trt_et.mends.decompose_to_core_aten import decompose_to_core_aten
from trt_et.mends.exact_sizes import use_exact_sizes
from trt_et.mends.guarded_sizes import narrow_guarded_sizes
from trt_et.mends.indices_of_nonzero import lay_out_indices
from trt_et.mends.joined_dtypes import cast_joined
from trt_et.mends.masked_writes import select_by_mask
from trt_et.mends.narrowed_sizes import mark_ranges
from trt_et.mends.numbers_of_sizes import keep_numbers_of_sizes_in_tensors
from trt_et.mends.size_remainders import write_out_size_remainders
from trt_et.mends.sized_constants import compute_sized_constants
from trt_et.mends.split_to_slices import replace_split_with_slice
from trt_et.mends.strides_of_sizes import compute_strides
from trt_et.mends.unused_checks import erase_unused_checks

Mend = Callable[[ExportedProgram], ExportedProgram]

FIRST: Final[tuple[Mend, ...]] = (
    copy_buffers_of_buffers,
    compute_sized_constants,
    lay_out_indices,
    keep_sizes_of_products,
    use_real_numbers,
    keep_numbers_of_sizes_in_tensors,
)
"""What a retrace would lose: before the passes that prepare a program for a backend."""

LAST: Final[tuple[Mend, ...]] = (
    compute_strides,
    cast_joined,
    decompose_to_core_aten,
    select_by_mask,
    erase_unused_checks,
    replace_split_with_slice,
    write_out_size_remainders,
    copy_results_of_control_flow,
)
"""What ExecuTorch refuses or computes wrongly: after them."""


def check(program: ExportedProgram) -> None:
    """Warn of what ExecuTorch lowers without a word, or with another message.

    Raises:
        PartitionError: The program was prepared for quantization and not converted, or weights
            have no values.
    """
    check_values(program)
    warn_training_mode(program)
    warn_while_loop(program)
    check_converted(program)


def mend_sizes(program: ExportedProgram) -> None:
    """Mend the ranges and symbols of a program that has its own; mark what they were."""
    narrow_guarded_sizes(program)
    use_exact_sizes(program)
    mark_ranges(program)
