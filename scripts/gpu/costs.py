"""What a call costs: executor_runner with and without CUDA graphs, and TensorRT-RTX's own bindings.

python scripts/gpu/costs.py KIT RESULT.json [--builder NAME]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from cudart import CudaRuntime
from kit import Model, read_kit

CALLS = 2000
TIMES = re.compile(r"p50 ([\d.]+) us, p90 ([\d.]+) us, p99 ([\d.]+) us")
LOAD = re.compile(r"Load: ([\d.]+) us")


def main() -> int:
    """Write the times of every model; 0 if the runner gave them for all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--builder", default="tensorrt_rtx", help="whose engines")
    options = parser.parse_args()
    results = {}
    for model in read_kit(options.kit, options.builder):
        results[model.name] = {
            "runner": _runner(model, graphs=True),
            "runner_without_graphs": _runner(model, graphs=False),
            "python": _python(model),
        }
        if options.builder == "tensorrt_rtx":
            results[model.name]["bare"] = _bare(model)
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if all("p50_us" in result["runner"] for result in results.values()) else 1


def _runner(model: Model, *, graphs: bool) -> dict[str, Any]:
    import trt_et.runtime

    command = [str(trt_et.runtime.runner_path()), "--model_path", str(model.program)]
    command += ["--num_executions", str(CALLS), "--print_timings"]
    variables = {**os.environ, "TRT_ET_CUDA_GRAPHS": "1" if graphs else "0"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=200)
    times, load = TIMES.search(done.stdout), LOAD.search(done.stdout)
    if done.returncode or times is None or load is None:
        return {"why": f"exit {done.returncode}: {done.stderr[-500:]}"}
    p50, p90, p99 = map(float, times.groups())
    return {"p50_us": p50, "p90_us": p90, "p99_us": p99, "load_us": float(load[1])}


def _python(model: Model) -> dict[str, Any]:
    """The stock Python runtime, inputs and outputs on the host."""
    code = (
        "import statistics, sys, time, torch, trt_et.runtime\n"
        "trt_et.runtime.load()\n"
        "from executorch.runtime import Runtime\n"
        "method = Runtime.get().load_program(sys.argv[1]).load_method('forward')\n"
        "inputs = torch.load(sys.argv[2])\n"
        "times = []\n"
        f"for _ in range({CALLS}):\n"
        "    before = time.perf_counter()\n"
        "    method.execute(inputs)\n"
        "    times.append(time.perf_counter() - before)\n"
        "print(statistics.median(times[100:]) * 1e6)\n"
    )
    inputs = model.program.with_suffix(".inputs")
    torch.save(model.inputs, inputs)
    command = [sys.executable, "-c", code, str(model.program), str(inputs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    if done.returncode:
        return {"why": f"exit {done.returncode}: {done.stderr[-500:]}"}
    return {"p50_us": float(done.stdout.split()[-1])}


def _bare(model: Model) -> dict[str, Any]:
    """TensorRT-RTX's own Python bindings, on the same engine, with tensors on the GPU."""
    try:
        import tensorrt_rtx as trt

        from trt_et.engine_info import decode_blob
        from trt_et.inspection import inspect_program

        blob = decode_blob(inspect_program(model.program.read_bytes())[0].delegates[0].blob)
        started = time.perf_counter()
        runtime = trt.Runtime(trt.Logger(trt.Logger.ERROR))
        engine = runtime.deserialize_cuda_engine(blob.engine)
        if engine is None:
            return {"why": "TensorRT-RTX refuses the engine; the log says why"}
        context = engine.create_execution_context()
        loaded = time.perf_counter() - started
        cuda = CudaRuntime()
        for binding in blob.info.bindings:
            size = getattr(torch, binding.dtype).itemsize
            for extent in binding.shape:
                size *= extent
            context.set_tensor_address(binding.name, cuda.allocate(size))
        stream = cuda.create_stream()
        enqueue, whole = [], []
        for _ in range(CALLS):
            before = time.perf_counter()
            context.execute_async_v3(stream)
            queued = time.perf_counter()
            cuda.wait(stream)
            enqueue.append(queued - before)
            whole.append(time.perf_counter() - before)
        return {
            "enqueue_p50_us": statistics.median(enqueue) * 1e6,
            "p50_us": statistics.median(whole) * 1e6,
            "load_us": loaded * 1e6,
        }
    except Exception as error:
        # Whatever it is, it is the answer.
        return {"why": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    sys.exit(main())
