"""Run the programs of docs/internals/upstream without a GPU, and print what each one prints.

A program that imports ``torch_tensorrt`` gets a stand-in. Its ``dynamo.compile`` converts with
Torch-TensorRT's own lowering and converters, without this package's workarounds, and evaluates the
TensorRT network on the CPU (``tests/support/network_evaluator``). Programs that use ExecuTorch or
TensorRT-RTX's builder run unchanged.

python -m tests.support.upstream_pages RESULTS.json PAGE.md...
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.export import ExportedProgram

from tests.support.forked import in_child
from tests.support.network_evaluator import evaluate
from tests.support.run_documents import blocks
from trt_et.conversion import stages
from trt_et.conversion.decompose import decomposed_operators
from trt_et.conversion.operator import Step
from trt_et.conversion.settings import make_settings
from trt_et.conversion.torch_tensorrt_import import torch_tensorrt
from trt_et.engine_program.make_program import make_engine_program
from trt_et.engines import BuildOptions, BuildRequest
from trt_et.engines.serialize import build_network


def compile_program(
    program: ExportedProgram, arg_inputs: Sequence[Any], min_block_size: int
) -> Callable[..., Any]:
    """Return a function that evaluates Torch-TensorRT's network of a program."""
    from torch_tensorrt.dynamo.lowering import get_decompositions, pre_export_lowering

    program = pre_export_lowering(program, make_settings())
    program = make_engine_program(program.run_decompositions(get_decompositions()), "page")
    network = build_network(BuildRequest("page", program, 0, BuildOptions()), "tensorrt_rtx")

    def run(*inputs: torch.Tensor) -> Any:
        named = dict(zip((binding.name for binding in program.inputs), inputs, strict=True))
        outputs = evaluate(network, named)
        return outputs[0] if len(outputs) == 1 else outputs

    return run


def remove_workarounds() -> None:
    """Leave Torch-TensorRT's converters and decompositions as they are."""
    stages.OPERATORS = (Step.DECOMPOSE,)  # type: ignore[misc]
    decomposed_operators.cache_clear()


def output(page: Path) -> str:
    """Run a page's program in a forked process; its output, or the signal that ended it."""
    (code,) = blocks(page.read_text(), "py")
    code = code.replace("import torch_tensorrt\n", "\n")
    names = {
        "__name__": "__main__",
        "torch_tensorrt": SimpleNamespace(dynamo=SimpleNamespace(compile=compile_program)),
    }
    with tempfile.TemporaryFile("w+") as file:

        def run() -> None:
            os.dup2(file.fileno(), 1)
            exec(compile(code, str(page), "exec"), names)

        status = in_child(run)
        file.seek(0)
        return file.read() + (f"ended by signal {-status}\n" if status < 0 else "")


def main(results: str, *pages: str) -> None:
    torch_tensorrt()
    remove_workarounds()
    # There is no GPU to move anything to.
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self: self  # type: ignore[method-assign]
    Path(results).write_text(json.dumps({page: output(Path(page)) for page in pages}))


if __name__ == "__main__":
    main(*sys.argv[1:])
