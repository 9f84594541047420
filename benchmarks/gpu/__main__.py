"""Times of our engines beside the best of PyTorch: models of ``make bench-engines``.

    python -m benchmarks.gpu export FOLDER             programs; needs no GPU
    python -m benchmarks.gpu run FOLDER OUTPUT.json --probe GPU_PROBE

``run`` needs neither trt-et nor ExecuTorch, but PyTorch, timm, torchvision and transformers. Both
sides get the same random inputs, of sizes and hashes that stand in the output.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.engines.models import MODELS
from benchmarks.gpu.models import BATCHES
from benchmarks.gpu.ways import WAYS


def main() -> None:
    """Do what the command line names."""
    start = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    export = verbs.add_parser("export")
    export.add_argument("folder", type=Path)
    export.add_argument("--builder", default="tensorrt_rtx", choices=["tensorrt_rtx", "reference"])
    run = verbs.add_parser("run")
    run.add_argument("folder", type=Path)
    run.add_argument("output", type=Path)
    run.add_argument("--probe", type=Path, required=True, help="the program gpu_probe")
    run.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="of PyTorch")
    run.add_argument("--rounds", type=int, default=100, help="timed calls of a run, at most")
    run.add_argument("--ways", nargs="+", choices=WAYS, default=tuple(WAYS), help="of PyTorch")
    run.add_argument("--seconds-per-step", type=float, default=60)
    run.add_argument("--seconds-per-timing", type=float, default=0.5)
    run.add_argument("--deadline", type=float, default=150, help="seconds; the rest is not run")
    for verb in (export, run):
        verb.add_argument("--only", nargs="+", metavar="MODEL", choices=MODELS)
        verb.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    options = parser.parse_args()

    if options.verb == "export":
        from benchmarks.gpu.export import export as export_programs

        export_programs(options.folder, options.only or MODELS, options.batches, options.builder)
    else:
        from benchmarks.gpu.measure import Plan, measure, models_in

        options.output.parent.mkdir(parents=True, exist_ok=True)
        plan = Plan(
            folder=options.folder,
            output=options.output,
            probe=options.probe,
            device=options.device,
            rounds=options.rounds,
            names=tuple(options.only or models_in(options.folder)),
            batches=tuple(options.batches),
            ways=tuple(options.ways),
            seconds_per_step=options.seconds_per_step,
            seconds_per_timing=options.seconds_per_timing,
            deadline=start + options.deadline,
        )
        measure(plan)


if __name__ == "__main__":
    main()
