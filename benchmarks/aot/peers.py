"""What trt-et is measured against, and builders that do no work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, final
from unittest import mock

import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import create_op_support

from trt_et.blob.writer import BlobWriter
from trt_et.engine_info import EngineInfo
from trt_et.engines import BuildRequest, EngineBuilder
from trt_et.graph.symbolic_shapes import shape_range
from trt_et.partition.ops_to_preserve import OPS_TO_PRESERVE

LEFT_OUT = torch.ops.aten.sin.default
PIECE = 16 << 20


@final
class NoopBackend(BackendDetails):
    """The framework's own cost: no engine, and no copy of the weights."""

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        return edge_program

    @staticmethod
    def preprocess(edge_program: Any, compile_specs: list[CompileSpec]) -> PreprocessResult:
        (size,) = (int(spec.value) for spec in compile_specs)
        return PreprocessResult(processed_bytes=bytes(size))


class NoopPartitioner(Partitioner):
    """Everything but sines, grouped as ExecuTorch's own partitioners do it.

    Args:
        size: Bytes of each partition's payload.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._specs = [CompileSpec("size", str(size).encode())]

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        groups = CapabilityBasedPartitioner(
            exported_program.graph_module,
            create_op_support(self._is_supported),
            allows_single_node_partition=True,
        ).propose_partitions()
        tags = {}
        for group in groups:
            tag = f"noop_{group.id}"
            for node in group.nodes:
                node.meta["delegation_tag"] = tag
            tags[tag] = DelegationSpec(NoopBackend.__name__, self._specs)
        tag_constant_data(exported_program)
        return PartitionResult(exported_program, tags)

    @staticmethod
    def _is_supported(_: Any, node: Node) -> bool:
        return node.op == "call_function" and "sin" not in node.name

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
        # The same graph as ours, or the framework's share could not be told from it.
        return list(OPS_TO_PRESERVE), None


class AllNoopPartitioner(NoopPartitioner):
    """The same with the sines, which language models have in their positions."""

    @staticmethod
    def _is_supported(_: Any, node: Node) -> bool:
        return node.op == "call_function"


class IdleBuilder(EngineBuilder):
    """Engines without work: the partition's name, then zeros, in pieces as TensorRT streams them.

    Args:
        size: Bytes of an engine.
    """

    name = "idle"

    def __init__(self, size: int) -> None:
        self.size = size

    def build(self, request: BuildRequest) -> bytes:
        info = EngineInfo(request.program.bindings, request.device_id, builder=self.name)
        with BlobWriter(info) as writer:
            left = self.size - writer.write(request.partition.encode().ljust(64)[: self.size])
            while left:
                left -= writer.write(bytes(min(left, PIECE)))
            return writer.finish()


def bare_build(program: ExportedProgram, path: Path) -> None:
    """The same engine with Torch-TensorRT's lowering and converters, streamed; no ExecuTorch.

    What ``torch_tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine`` does, less the
    partitioning; that function itself ends by deserializing the engine, which needs a GPU.
    """
    import tensorrt as trt
    from torch_tensorrt import Input
    from torch_tensorrt.dynamo.conversion._TRTInterpreter import TRTInterpreter
    from torch_tensorrt.dynamo.lowering import (
        get_decompositions,
        post_lowering,
        pre_export_lowering,
    )

    from trt_et.conversion.settings import make_settings
    from trt_et.conversion.torch_tensorrt_import import logged_errors
    from trt_et.conversion.torch_tensorrt_patches import without_gpu

    with without_gpu(), logged_errors(), path.open("wb") as file:

        class Writer(trt.IStreamWriter):  # type: ignore[misc]
            def write(self, piece: bytes) -> int:
                return file.write(piece)

        settings = make_settings()
        program = pre_export_lowering(program, settings)
        program = program.run_decompositions(get_decompositions(False))
        module = post_lowering(program.module(), settings)
        values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
        inputs = [Input(**_shapes(value), dtype=value.dtype) for value in values]
        interpreter = TRTInterpreter(module, inputs, compilation_settings=settings)
        interpreter._construct_trt_network_def()
        config = interpreter._populate_trt_builder_config()
        built = interpreter.builder.build_serialized_network_to_stream(
            interpreter.ctx.net, config, Writer()
        )
    if not built:
        raise SystemExit("the bare build failed")


def _shapes(value: torch.Tensor) -> dict[str, tuple[int, ...]]:
    if all(isinstance(size, int) for size in value.shape):
        return {"shape": tuple(value.shape)}
    sizes = zip(*(shape_range(size) for size in value.shape), strict=True)
    return dict(zip(("min_shape", "opt_shape", "max_shape"), sizes, strict=True))


def quick_bytes() -> Any:
    """Let ``bytes(tensor.untyped_storage())``, which the vendor's backend calls, be one copy.

    As torch has it, it takes two seconds a MiB: memory could not be measured at a size that counts.
    """

    def copy(storage: torch.UntypedStorage) -> bytes:
        return bytes(memoryview(torch.tensor([], dtype=torch.uint8).set_(storage).numpy()))

    return mock.patch.object(torch.UntypedStorage, "__bytes__", copy, create=True)


def vendor_stage(size: int) -> tuple[ExportedProgram, Partitioner, Any]:
    """A program with an engine in it, as Torch-TensorRT hands it to its ExecuTorch backend.

    Returns:
        The program, Torch-TensorRT's partitioner, and its compile configuration.
    """
    from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
    from trt_et.conversion.torch_tensorrt_patches import without_gpu

    torch_tensorrt()
    # Only its C++ runtime, which needs libtorch's CUDA part, knows the engine's class.
    plain = mock.patch.object(torch._library, "register_fake_class", return_value=lambda cls: cls)
    with without_gpu(), plain:
        import torch_tensorrt.dynamo.runtime.meta_ops.register_meta_ops
        from torch_tensorrt.dynamo.runtime._TorchTensorRTModule import TorchTensorRTModule
        from torch_tensorrt.executorch import TensorRTPartitioner, get_edge_compile_config

    shape = {"shape_exprs": [4, 8], "dtype": torch.float32, "name": "x"}
    symbols = {"inout_symexprs": {"inputs": [shape], "outputs": [shape]}}
    metadata = TorchTensorRTModule.encode_metadata(None, symbols)  # type: ignore[arg-type]

    class Compiled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("_trt_engine_0", torch.zeros(size, dtype=torch.uint8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            before = ["9", "engine", "0%8%9%0%GPU"]
            after = ["x", "output0", "0", metadata, "linux_x86_64", "0", "0", "0"]
            call = torch.ops.tensorrt.no_op_placeholder_for_execute_engine.default
            # Release 2.14 adds a field.
            fields = [*before, self._trt_engine_0, *after, ""][: len(call._schema.arguments) - 1]
            return call([x], *fields)[0]

    program = torch.export.export(Compiled().eval(), (torch.randn(4, 8),))
    return program, TensorRTPartitioner(), get_edge_compile_config()


def make_partitioner(backend: str, engine_bytes: int, options: dict[str, Any]) -> Partitioner:
    """``noop``, ``xnnpack``, or ours: ``idle`` (its builder does no work), ``onnx``, ``rtx``."""
    if backend == "noop":
        return NoopPartitioner(engine_bytes)
    if backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return XnnpackPartitioner()
    from trt_et import TensorRTPartitioner

    builders = {"idle": IdleBuilder(engine_bytes), "onnx": "onnx", "rtx": "tensorrt_rtx"}
    builder = builders[backend]
    return TensorRTPartitioner(builder=builder, excluded_ops=[LEFT_OUT], **options)
