"""GPU memory of one, two and four methods of the same program, in one process: P17.

python scripts/gpu/memory.py KIT RESULT.json --builder NAME
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from cudart import CudaRuntime

COUNTS = (1, 2, 4)


def main() -> int:
    """Write the bytes for every model of the kit; 0 if there are some of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--builder", default="tensorrt", help="whose engines")
    options = parser.parse_args()
    results: dict[str, object] = {}
    failed = False
    for program in sorted(options.kit.glob(f"*.{options.builder}.pte")):
        command = [sys.executable, __file__, "--of", str(program)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        failed = failed or done.returncode != 0
        results[program.name] = (
            {"why": f"exit {done.returncode}: {done.stderr[-1000:]}"}
            if done.returncode
            else json.loads(done.stdout.splitlines()[-1])
        )
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 1 if failed or not results else 0


def measure(program: str) -> dict[str, int]:
    """Bytes of GPU memory that so many methods, each run once, take from the device."""
    import torch
    from executorch.runtime import Runtime

    import trt_et.runtime

    trt_et.runtime.load()
    runtime = Runtime.get()
    kept = []
    found = {}
    before = _used()
    for count in range(1, max(COUNTS) + 1):
        loaded = runtime.load_program(program)
        method = loaded.load_method("forward")
        metadata = method.metadata
        inputs = [
            torch.ones(metadata.input_tensor_meta(i).sizes()) for i in range(metadata.num_inputs())
        ]
        method.execute(inputs)
        kept.append((loaded, method))
        if count in COUNTS:
            found[f"methods_{count}"] = _used() - before
    return found


def _used() -> int:
    from trt_et.tools.counters import read_counter

    if os.environ["TRT_ET_CUDA"] == "real":
        # The first call makes CUDA's context: its share is there before the first method.
        return CudaRuntime().used_memory()
    return read_counter("live_bytes") or 0


if __name__ == "__main__":
    if sys.argv[1] == "--of":
        print(json.dumps(measure(sys.argv[2])))
        sys.exit(0)
    sys.exit(main())
