"""Engines of a few layers, described in text for the tests' fake or for ``make_engine``.

``make_engine`` (tests/gpu/native) builds real engines from the text with TensorRT's C++ API. It
needs no Torch-TensorRT, which does not exist for every TensorRT and every machine.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.fx import Node

from tests.support.native_environment import run
from trt_et.engine_info import EngineInfo, encode_blob
from trt_et.engine_program.program import EngineProgram
from trt_et.engines import BuildRequest, EngineBuilder
from trt_et.errors import BuilderError

# Of the tests' fakes: tests/runtime/tensorrt_fake/tables.h.
FAKE_VERSIONS = {"tensorrt": "11.7.3", "tensorrt_rtx": "1.10.3"}


@dataclass(frozen=True)
class DescribedEngines(EngineBuilder):
    """Builds the engines of partitions that are lines of float32 layers."""

    maker: Path | None = None  # make_engine; None: engines of the tests' fake of TensorRT.
    library: Path | None = None  # The TensorRT that it opens.
    capability: str | None = None  # Of the GPU at hand, such as "9.0"; None: not said.
    name: str = "tensorrt"  # Or "tensorrt_rtx".

    def build(self, request: BuildRequest) -> bytes:
        """The engine's blob.

        Raises:
            BuilderError: No text describes the partition, or TensorRT does not build it.
        """
        text = describe(request.program, request.partition)
        engine, version = text.encode(), FAKE_VERSIONS[self.name]
        if self.maker is not None:
            engine, version = self._make(engine, request.partition)
        info = EngineInfo(
            bindings=request.program.bindings,
            device_id=request.device_id,
            builder=self.name,
            library_version=version,
            compute_capabilities=(self.capability,) if self.capability else (),
        )
        return encode_blob(engine, info)

    def _make(self, description: bytes, partition: str) -> tuple[bytes, str]:
        with tempfile.TemporaryDirectory() as name:
            text, engine = Path(name) / "description", Path(name) / "engine"
            text.write_bytes(description)
            command = [self.maker, text, self.library, engine]
            done = run(*command, env=dict(os.environ), timeout=300)
            if done.returncode:
                raise BuilderError(
                    f"partition {partition}: make_engine, exit {done.returncode}: "
                    f"{done.stderr[-1500:]}"
                )
            return engine.read_bytes(), _version(int(done.stdout), rtx=self.name != "tensorrt")


def describe(program: EngineProgram, partition: str) -> str:
    """The text of tests/runtime/tensorrt_fake/plan.h.

    Raises:
        BuilderError: An output is not a line of ``linear``, ``relu``, sums, and sums and products
            with a number.
    """
    lines = ["fake", "weights 1024", "scratch 256"]
    for binding in program.bindings:
        kind = "input" if binding.is_input else "output"
        if binding.dtype != "float32":
            raise BuilderError(f"partition {partition}: {binding.name} is {binding.dtype}")
        lines.append(f"{kind} {binding.name} float32 {_shape(binding.shape)}")
    for binding in (binding for binding in program.inputs if binding.is_dynamic):
        ranges = (binding.min_shape, binding.opt_shape, binding.max_shape)
        lines.append(f"range {binding.name} " + " ".join(_shape(shape or ()) for shape in ranges))
    (results,) = program.exported.graph.output_node().args
    for binding, result in zip(program.outputs, results, strict=True):
        lines.extend(_line(program, partition, binding.name, result))
    return "\n".join(lines) + "\n"


def _line(program: EngineProgram, partition: str, output: str, last: Node) -> Iterator[str]:
    """The layers from an input to an output; each takes what the one before wrote."""
    chain = []
    node = last
    while node.op == "call_function":
        chain.append(node)
        node = node.all_input_nodes[0]
    source = node.name
    if source not in {binding.name for binding in program.inputs}:
        raise BuilderError(f"partition {partition}: {output} begins with {source}, no input")
    constants = program.constants
    for node in reversed(chain):
        yield _layer(node, output, source, constants, partition)
        source = output


def _layer(
    node: Node, output: str, source: str, constants: dict[str, torch.Tensor], partition: str
) -> str:
    aten = torch.ops.aten
    if node.kwargs:  # Such as the factor alpha of a sum.
        raise BuilderError(f"partition {partition}: {node.target} has {sorted(node.kwargs)}")
    others = node.all_input_nodes[1:]
    values = [constants[other.name] for other in others if other.name in constants]
    if node.target == aten.relu.default:
        return f"relu {output} {source}"
    if node.target == aten.linear.default and len(values) == 2:
        weight = values[0]
        numbers = " ".join(repr(value) for t in values for value in t.flatten().tolist())
        return f"linear {output} {source} {weight.shape[1]} {weight.shape[0]} {numbers}"
    if node.target in (aten.mul.Tensor, aten.add.Tensor) and len(others) == 1:
        if values and values[0].numel() == 1:
            kind = "scale" if node.target == aten.mul.Tensor else "shift"
            return f"{kind} {output} {source} {values[0].item()!r}"
        if not values and node.target == aten.add.Tensor and others[0].op == "placeholder":
            return f"sum {output} {source} {others[0].name}"
    raise BuilderError(f"partition {partition}: no layer of a described engine is {node.target}")


def _version(number: int, *, rtx: bool) -> str:
    """TensorRT 8 counts in steps of 1000, what came after it in steps of 10000."""
    step = 1000 if not rtx and number < 10_000 else 10_000
    return f"{number // step}.{number % step // 100}.{number % 100}"


def _shape(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape)) or "-"
