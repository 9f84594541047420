"""What becomes of a program: lowered once, its networks evaluated, its engines built, and run."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from executorch.exir import EdgeCompileConfig
from torch import nn
from torch.utils import _pytree as pytree

from tests.support.lowering import finish
from tests.support.network_evaluator.comparison import PRECISION, Verdict, compare, difference
from tests.support.simulated_gpus import load_method
from trt_et import TensorRTPartitioner
from trt_et.blob.codec import encode_blob
from trt_et.blob.model import REFERENCE_BUILDER, EngineInfo
from trt_et.engine_program.program import DTYPE_NAMES
from trt_et.engines import BuildRequest, EngineBuilder, make_builder

Tensors = list[torch.Tensor]


class Handed(NamedTuple):
    """A program of a peer's test; it is exported with the first call's inputs."""

    module: nn.Module
    calls: list[tuple[Any, ...]]
    dynamic_shapes: Any = None
    random: bool = False  # Only shapes and dtypes are compared.


class PeerBuilder(EngineBuilder):
    """Evaluates a partition's network, builds a TensorRT-RTX engine, returns a reference engine.

    Args:
        inputs: The test's own; partitions that take such tensors are evaluated on them as well.
    """

    name = "peers"

    def __init__(self, inputs: Tensors) -> None:
        self.inputs = inputs
        self.verdicts: dict[str, Verdict] = {}

    def build(self, request: BuildRequest) -> bytes:
        taken = [(DTYPE_NAMES.get(t.dtype), t.shape) for t in self.inputs]
        expected = [(b.dtype, b.opt_shape or b.shape) for b in request.program.inputs]
        examples = self.inputs if taken == expected else []
        self.verdicts[request.partition] = compare(request, *examples)
        make_builder("tensorrt_rtx").build(request)
        try:
            return make_builder("reference").build(request)
        except Exception as error:
            # ExecuTorch cannot lower it, which TensorRT does not need; a run finds no program.
            info = EngineInfo(request.program.bindings, request.device_id, REFERENCE_BUILDER)
            return encode_blob(f"no reference engine: {error}".encode(), info)


def judge(handed: Handed) -> tuple[str, str]:
    module = handed.module.eval()
    try:
        _eager(module, handed.calls[0])
    except Exception as error:
        return "eager fails", str(error)
    try:
        program = torch.export.export(module, handed.calls[0], dynamic_shapes=handed.dynamic_shapes)
    except Exception as error:
        return "not exported", str(error)
    exported = program.module()
    accepted = [c for c in handed.calls if _takes(exported, c) and _takes(module, c)]
    calls = [(call, _eager(module, call)) for call in accepted]
    builder = PeerBuilder(_leaves(handed.calls[0]))
    try:
        pte = _lower(program, TensorRTPartitioner(builder=builder))
    except Exception as error:
        alone = _alone(handed, [])
        return ("refused by ExecuTorch alone", alone) if alone else ("export ended", str(error))
    wrong = [v for v in builder.verdicts.values() if v.outcome != "equal"]
    for verdict in wrong:
        if verdict.outcome != "not evaluated" and not handed.random:
            return f"network: {verdict.outcome}", f"{verdict.operators}: {verdict.why}"
    if why := _run(pte, calls, handed.random):
        alone = _alone(handed, calls)
        if not alone:
            return "run: wrong", why
        proved = builder.verdicts and not wrong
        return "right by its networks" if proved else "wrong in ExecuTorch alone", alone
    if wrong:
        return "right, network not evaluated", wrong[0].why
    return "right" if builder.verdicts else "right, nothing delegated", ""


def _lower(program: torch.export.ExportedProgram, *partitioner: TensorRTPartitioner) -> bytes:
    config = EdgeCompileConfig(_check_ir_validity=False)
    return bytes(finish(program, *partitioner, compile_config=config).buffer)


def _alone(handed: Handed, calls: list[tuple[Any, Tensors]]) -> str:
    """What is wrong with the program without this backend; empty if nothing is."""
    module, first = handed.module, handed.calls[0]
    try:
        pte = _lower(torch.export.export(module, first, dynamic_shapes=handed.dynamic_shapes))
    except Exception as error:
        return str(error)
    return _run(pte, calls, handed.random)


def _eager(module: nn.Module, call: tuple[Any, ...]) -> Tensors:
    """Results; a program may change its inputs and its state."""
    return _leaves(copy.deepcopy(module)(*_clones(call)))


def _takes(module: nn.Module, call: tuple[Any, ...]) -> bool:
    """Whether inputs are within what torch exported, which makes some dimensions static."""
    try:
        _eager(module, call)
    except (AssertionError, IndexError, RuntimeError):
        return False
    return True


def _run(pte: bytes, calls: list[tuple[Any, Tensors]], random: bool) -> str:
    """How results differ from eager's, or why there are none; empty if all are right."""
    try:
        method = load_method(pte) if calls else None
        for inputs, expected in calls:
            results = _leaves(method.execute(pytree.tree_leaves(_clones(inputs))))
            for index, (have, want) in enumerate(zip(results, expected, strict=True)):
                dtypes = [t.dtype for t in (*_leaves(inputs), want)]
                precision = max(PRECISION.get(dtype, 1e-4) for dtype in dtypes)
                same = random and (have.shape, have.dtype) == (want.shape, want.dtype)
                if why := "" if same else difference(have, want, precision):
                    return f"output {index}: {why}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _clones(values: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, values)


def _leaves(values: Any) -> Tensors:
    return [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(values) if leaf is not None]
