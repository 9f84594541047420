"""Exports architectures with ``backend="tensorrt"``, each in a process of its own.

python -m tests.support.transformers_table FOLDER [MODEL_TYPE ...]

Results are files in FOLDER; an architecture that has its result there does not run again. The table
is in ``docs/guides/transformers-exporter.md``.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from transformers.exporters import ExecutorchConfig, ExecutorchExporter

import trt_et.transformers
from tests.support.forked import in_child
from tests.support.simulated_gpus import load_runtime
from tests.support.transformers_table.report import write
from tests.support.transformers_table.small_models import architectures, make
from trt_et.inspection import inspect_program

SECONDS = 900
BYTES = 12 << 30


def main(folder: Path, *names: str) -> None:
    """Run the architectures without a result, and write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    known = dict(architectures())
    for name in names or known:
        file = folder / f"{name}.json"
        if not file.exists():
            _run_in_child(file, known[name])
    write(folder)


def _run_in_child(file: Path, config: Any) -> None:
    def run() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        try:
            made = make(config)
        except Exception as error:
            return _save(file, {"not_made": _first_line(error)})
        try:
            _save(file, _run(*made))
        except Exception as error:
            _save(file, {"reason": _first_line(error), "kind": type(error).__name__})

    status = in_child(run, SECONDS)
    if not file.exists():
        _save(file, {"reason": f"the process ended with {status}", "kind": "Ended"})
    sys.stdout.write(f"{file.stem}: {file.read_text()[:200]}\n")
    sys.stdout.flush()


def _run(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> dict[str, Any]:
    with torch.no_grad():
        expected = _tensors(model(**inputs))
    load_runtime()
    trt_et.transformers.register(builder="reference", progress=False)
    config = ExecutorchConfig(backend="tensorrt")
    exported = ExecutorchExporter().export(model, dict(inputs), config=config)
    (method,) = inspect_program(bytes(exported.program.buffer))
    result: dict[str, Any] = {
        "engines": sum(call.kind == "delegate" for call in method.calls),
        "cpu": method.operator_calls,
    }
    found = _tensors(exported.to(None)(**inputs))
    if len(found) != len(expected):
        return {**result, "difference": f"{len(found)} results, eager has {len(expected)}"}
    pairs = list(zip(found, expected, strict=True))
    equal = all(
        torch.allclose(f.double(), e.double(), atol=1e-4, rtol=1e-4, equal_nan=True)
        for f, e in pairs
    )
    largest = max((f.double() - e.double()).abs().max().item() for f, e in pairs)
    return {**result, "equal": equal, "largest": largest}


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(_plain(value)) if isinstance(leaf, torch.Tensor)]


def _plain(value: Any) -> Any:
    return tuple(value.values()) if hasattr(value, "values") else value


def _first_line(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _save(file: Path, result: dict[str, Any]) -> None:
    file.write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
