"""Programs with engines of TensorRT-RTX, and what their engines say of a call."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.engines.facts import facts_of
from benchmarks.engines.ways import engines_of
from benchmarks.gpu.models import half_model
from tests.support.gpu.make_kit import export_model
from trt_et import TensorRTPartitioner


def export(folder: Path, names: Iterable[str]) -> None:
    """Write ``NAME.pte``, with inputs and outputs on the GPU, and ``NAME.json`` of each model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        start = time.monotonic()
        try:
            facts = _export_one(folder / f"{name}.pte", name)
        except Exception as error:  # The next model may be exported.
            facts = {"error": f"{type(error).__name__}: {error}"}
        (folder / f"{name}.json").write_text(json.dumps(facts, indent=2) + "\n")
        sys.stdout.write(f"{name}: {time.monotonic() - start:.0f} s, {facts}\n")
        sys.stdout.flush()


def _export_one(path: Path, name: str) -> dict[str, Any]:
    model = half_model(name)
    export_model(
        model.module,
        model.inputs,
        [TensorRTPartitioner()],
        path,
        dynamic_shapes=model.dynamic_shapes,
        where="on_device",
    )
    return facts_of(engines_of(path.read_bytes()))
