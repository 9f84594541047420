"""The same models in eager PyTorch and torch.compile on the GPU.

python scripts/gpu/peers.py KIT RESULT.json [--device cpu]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kit import read_kit

from tests.support.models import make

CALLS = 500


def main() -> int:
    """Write the median times of every model, in microseconds."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--device", default="cuda", help="cpu, for a rehearsal")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    device: str = options.device
    for entry in read_kit(options.kit, "reference"):
        model, inputs = make(entry.name)
        model = model.to(device)
        arguments = [tensor.to(device) for tensor in inputs]
        results[entry.name] = {"eager": _time(model, arguments, device)}
        if device != "cpu":
            results[entry.name]["compiled"] = _time(torch.compile(model), arguments, device)
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0


def _time(model: Callable[..., Any], inputs: list[torch.Tensor], device: str) -> dict[str, Any]:
    def call() -> None:
        model(*inputs)
        if device == "cuda":
            torch.cuda.synchronize()

    times = []
    try:
        with torch.no_grad():
            for _ in range(5):
                call()
            for _ in range(CALLS):
                started = time.perf_counter()
                call()
                times.append(time.perf_counter() - started)
    except Exception as error:
        # A peer that does not run is an answer too.
        return {"why": f"{type(error).__name__}: {error}"}
    return {"p50_us": statistics.median(times) * 1e6}


if __name__ == "__main__":
    sys.exit(main())
