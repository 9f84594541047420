"""``python -m benchmarks.aot [--quick]``: prints the goals, and writes ``results/aot.json``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.aot import curves
from benchmarks.aot.goals import WHY_MISSED, Plan, measure
from benchmarks.figures import write
from tests.support.native_environment import ROOT

QUICK = Plan(millions=12, engine_mebibytes=128, partitions=(4, 12), rounds=1)
CURVES: dict[str, Callable[[], Any]] = {
    "parameters": lambda: curves.by_parameters((10, 30, 100, 300)),
    "partitions": lambda: curves.by_partitions((1, 16, 64, 128, 200)),
}
ONLY = "measure these goals and curves; the file keeps its others"


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small models, one round, no curves")
    parser.add_argument("--only", nargs="+", default=[], metavar="GOAL", help=ONLY)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    quick, only = arguments.quick, arguments.only
    output: Path = arguments.output or ROOT / (
        "build/aot-quick.json" if quick else "benchmarks/results/aot.json"
    )
    stored = json.loads(output.read_text()) if only and output.exists() else {}
    goals, drawn = stored.get("goals", {}), stored.get("curves", {})
    for goal, found in measure(QUICK if quick else Plan(), only):
        if found["ok"] is False and goal in WHY_MISSED:
            found["why"] = WHY_MISSED[goal]
        # What else ran meanwhile: with more than there are cores, times say little.
        goals[goal] = found | {"load_average": round(os.getloadavg()[0], 1)}
        sys.stdout.write(f"{goal}: {found['value']} (at most {found['goal']})\n")
    for name, curve in CURVES.items():
        if not quick and (not only or name in only):
            drawn[name] = curve()
    goals = dict(sorted(goals.items(), key=lambda item: int(item[0][1:])))
    more = {"machine": stored["machine"]} if stored else {}
    more |= {"curves": drawn} if drawn else {}
    write(output, "make bench-aot" + (" QUICK=1" if quick else ""), goals, **more)


if __name__ == "__main__":
    main()
