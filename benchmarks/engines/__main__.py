"""``python -m benchmarks.engines [--quick]``: prints the goals, writes ``results/engines.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.aot.processes import run
from benchmarks.engines.goals import TASKS, engine_goals, export_goal
from benchmarks.engines.models import MODELS
from benchmarks.engines.ways import WAYS
from benchmarks.figures import write
from tests.support.native_environment import ROOT

_QUICK = ("mobilenet_v3", "unet", "vit_tiny")
_ONLY = "build these models, and no P33; the file keeps its others"
_PACKAGES = (
    "tensorrt-rtx",
    "torch-tensorrt-rtx",
    "onnxscript",
    "torchvision",
    "timm",
    "transformers",
)


def main() -> None:
    """Build, read, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three models, one round of P33")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="MODEL", choices=MODELS, help=_ONLY
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    output: Path = arguments.output or ROOT / (
        "build/engines-quick.json" if quick else "benchmarks/results/engines.json"
    )
    stored = json.loads(output.read_text()) if only and output.exists() else {}
    times = stored.get("goals", {}).get("P33")
    if not only:
        times = export_goal(rounds=1 if quick else 3)[1]
    names = only or (_QUICK if quick else tuple(MODELS))
    models = stored.get("models", {}) | _read_engines(names)
    models = {name: models[name] for name in MODELS if name in models}
    goals = dict(engine_goals(models)) | ({"P33": times} if times else {})
    for name, goal in goals.items():
        sys.stdout.write(f"{name}: {goal['value']} (at most {goal['goal']})\n")
    command = "make bench-engines" + (" QUICK=1" if quick else "")
    versions = {name: metadata.version(name) for name in _PACKAGES}
    write(output, command, goals, versions=versions, models=models)


def _read_engines(names: Sequence[str]) -> dict[str, Any]:
    """Build the models' engines, two models at a time: no time of this is measured."""
    tasks = [("engines", {"model": name, "ways": list(WAYS)}) for name in names]
    with ThreadPoolExecutor(2) as pool:
        found = {}
        for name, ways in zip(names, pool.map(partial(run, module=TASKS), tasks), strict=True):
            found[name] = ways
            kernels = {way: facts.get("kernels", "failed") for way, facts in ways.items()}
            sys.stdout.write(f"{name}: kernels {kernels}\n")
            sys.stdout.flush()
        return found


if __name__ == "__main__":
    main()
