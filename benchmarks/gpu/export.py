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
from benchmarks.gpu.models import case_name, half_model, has_batch, hash_of
from tests.support.gpu.make_kit import export_model
from trt_et import TensorRTPartitioner


def export(folder: Path, names: Iterable[str], batches: Iterable[int], builder: str) -> None:
    """Write the program of each case, with inputs and outputs on the GPU, and facts of it.

    That is ``CASE.pte`` and ``CASE.json``, which has the hash of the weights, too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = list(names)
    for batch in batches:
        for name in names:
            if not has_batch(name, batch):
                continue
            case = case_name(name, batch)
            start = time.monotonic()
            try:
                facts = _export_one(folder / f"{case}.pte", name, batch, builder)
            except Exception as error:  # The next model may be exported.
                facts = {"error": f"{type(error).__name__}: {error}"}
            (folder / f"{case}.json").write_text(json.dumps(facts, indent=2) + "\n")
            sys.stdout.write(f"{case}: {time.monotonic() - start:.0f} s, {facts}\n")
            sys.stdout.flush()


def _export_one(path: Path, name: str, batch: int, builder: str) -> dict[str, Any]:
    model = half_model(name, batch)
    facts = {"weights_sha256": hash_of(model.module.state_dict().values())}
    export_model(
        model.module,
        model.inputs,
        [TensorRTPartitioner(builder=builder)],
        path,
        dynamic_shapes=model.dynamic_shapes,
        where="on_device",
    )
    return facts if builder == "reference" else facts | facts_of(engines_of(path.read_bytes()))
