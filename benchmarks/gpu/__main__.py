"""Times of our engines, eager PyTorch and ``torch.compile``: models of ``make bench-engines``.

    python -m benchmarks.gpu export FOLDER             programs; needs no GPU
    python -m benchmarks.gpu run FOLDER OUTPUT.json --probe GPU_PROBE

``run`` needs neither trt-et nor ExecuTorch, but PyTorch, timm, torchvision and transformers.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.engines.models import MODELS


def main() -> None:
    """Do what the command line names."""
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    export = verbs.add_parser("export")
    export.add_argument("folder", type=Path)
    run = verbs.add_parser("run")
    run.add_argument("folder", type=Path)
    run.add_argument("output", type=Path)
    run.add_argument("--probe", type=Path, required=True, help="the program gpu_probe")
    run.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    run.add_argument("--rounds", type=int, default=100, help="timed calls")
    run.add_argument(
        "--seconds-per-model", type=float, default=60, help="the longest that a way may take"
    )
    run.add_argument("--deadline", type=float, default=150, help="seconds; the rest is not run")
    for verb in (export, run):
        verb.add_argument("--only", nargs="+", metavar="MODEL", choices=MODELS)
    options = parser.parse_args()

    if options.verb == "export":
        from benchmarks.gpu.export import export as export_programs

        export_programs(options.folder, options.only or MODELS)
    else:
        from benchmarks.gpu.measure import Plan, measure

        plan = Plan(
            folder=options.folder,
            output=options.output,
            probe=options.probe,
            device=options.device,
            rounds=options.rounds,
            names=tuple(options.only or MODELS),
            seconds_per_model=options.seconds_per_model,
            deadline=start + options.deadline,
        )
        measure(plan)


if __name__ == "__main__":
    main()
