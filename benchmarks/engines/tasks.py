"""Measurements, each in a process of its own (``benchmarks/aot/processes.py``)."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.forked import in_child

if TYPE_CHECKING:
    from benchmarks.engines.models import Model

Result = dict[str, Any]


def engines(model: str, ways: list[str]) -> Result:
    """What is read of a model's engines, by way; ``failed`` in place of it where there are none."""
    import timm  # noqa: F401  # What all children import is imported once.
    import torchvision  # noqa: F401
    import transformers  # noqa: F401

    from benchmarks.engines.models import make_model

    _import_what_ways_need()

    def make(way: str) -> Model:
        made = make_model(model)
        return made if way == "ours_precision" else made.half()

    return {way: _facts(way, partial(make, way)) for way in ways}


def operators(names: list[str], ways: list[str], dtypes: list[str]) -> Result:
    """The same of networks of an operator: by name, dtype and way."""
    from benchmarks.engines.operators import make_network

    _import_what_ways_need()

    def make(name: str, dtype: str) -> Model:
        made = make_network(name)
        return made.half() if dtype == "float16" else made

    return {
        name: {
            dtype: {way: _facts(way, partial(make, name, dtype)) for way in ways}
            for dtype in dtypes
        }
        for name in names
    }


def _import_what_ways_need() -> None:
    import trt_et.partitioner  # noqa: F401
    from trt_et.conversion.torch_tensorrt_import import torch_tensorrt

    torch_tensorrt()


def _facts(way: str, make: Callable[[], Model]) -> Result:
    """What is read of a model's engines; a way that ends its process fails."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        status = in_child(partial(_write_facts, way, make, Path(file.name)))
        text = file.read()
    return json.loads(text) if text else {"failed": f"the process ended with {status}"}


def _write_facts(way: str, make: Callable[[], Model], file: Path) -> None:
    from benchmarks.engines.facts import facts_of
    from benchmarks.engines.ways import WAYS

    try:
        result: Result = facts_of(WAYS[way](make()))
    except Exception as error:
        traceback.print_exc()
        result = {"failed": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"}
    file.write_text(json.dumps(result))


def partitioner(again: int) -> Result:
    """Processor seconds of ``TensorRTPartitioner()``: the first, and the mean of those after it."""
    from benchmarks.aot.tasks import Clock
    from trt_et import TensorRTPartitioner

    clock = Clock()
    TensorRTPartitioner()
    first = clock.read()["cpu_seconds"]
    clock = Clock()
    for _ in range(again):
        TensorRTPartitioner()
    return {"first": first, "next": clock.read()["cpu_seconds"] / again}


def exports(model: str, rounds: int) -> Result:
    """Processor seconds from the exported program to the file, in turn: medians over the rounds.

    Returns:
        ``ours`` with ``TensorRTPartitioner()``, engine build included; ``idle`` with a backend that
        does nothing; ``bare``: Torch-TensorRT's lowering, converters and build, no ExecuTorch.
    """
    import statistics

    import torch

    from benchmarks.aot.peers import AllNoopPartitioner, bare_build
    from benchmarks.aot.tasks import Clock, write_program
    from benchmarks.engines.models import make_model
    from benchmarks.engines.ways import export
    from trt_et import TensorRTPartitioner

    found: dict[str, list[float]] = {"ours": [], "idle": [], "bare": []}
    for turn in range(rounds + 1):
        for name, seconds in found.items():
            program = export(make_model(model).half())
            with tempfile.TemporaryDirectory() as folder, torch.no_grad():
                path = Path(folder) / "file"
                clock = Clock()
                if name == "bare":
                    bare_build(program, path)
                elif name == "ours":
                    write_program(path, program, TensorRTPartitioner())
                else:
                    write_program(path, program, AllNoopPartitioner(1024))
                if turn:  # The first imports and fills caches.
                    seconds.append(clock.read()["cpu_seconds"])
    return {name: statistics.median(seconds) for name, seconds in found.items()}
