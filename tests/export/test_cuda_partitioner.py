"""With ExecuTorch's partitioner for its CUDA backend.

``CudaPartitioner`` itself needs Triton and a GPU; its partitioning is ``AotiPartitioner``'s, which
is used here, with a backend that keeps nothing in place of AOTInductor.
"""

from __future__ import annotations

from typing import final

import torch
from executorch.backends.aoti.aoti_partitioner import AotiPartitioner
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec

from tests.support.lowering import delegate_tensor_devices, export, finish, reference
from trt_et.inspection import inspect_program


@final
class AotInductorInItsPlace(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs) -> PreprocessResult:
        return PreprocessResult(processed_bytes=b"nothing")


def theirs() -> AotiPartitioner:
    return AotiPartitioner(
        AotInductorInItsPlace.__name__, [CompileSpec("target_device", b"cuda:1")]
    )


def ours():
    return reference(device=1, excluded_ops=[torch.ops.aten.cumsum])


def lowered(*partitioners):
    return finish(export("split"), *partitioners)


def test_it_takes_what_we_leave_and_everything_stays_on_the_gpu():
    program = lowered(ours(), theirs())
    pte = bytes(program.buffer)
    assert [delegate.backend_id for delegate in inspect_program(pte)[0].delegates] == [
        "TensorRTBackend",
        "AotInductorInItsPlace",
        "TensorRTBackend",
    ]
    assert delegate_tensor_devices(pte) == [{"cuda:1"}] * 3
    copies = [
        node.target._schema.name
        for node in program.exported_program().graph.nodes
        if "et_copy" in str(getattr(node.target, "_schema", ""))
    ]
    # Of the two inputs and the output.
    assert sorted(copies) == ["et_copy::_d2h_copy", *["et_copy::_h2d_copy"] * 2]


def test_we_claim_nothing_that_it_has_taken():
    partitioner = ours()
    (method,) = inspect_program(bytes(lowered(theirs(), partitioner).buffer))
    assert {delegate.backend_id for delegate in method.delegates} == {"AotInductorInItsPlace"}
    assert partitioner.report.partitions == ()
