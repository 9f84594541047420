"""What a call costs: executor_runner with and without CUDA graphs, and the bare TensorRT API.

python scripts/gpu/costs.py KIT RESULT.json [--rehearse]
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
from kit import Model, read_kit

CALLS = 2000
TIMES = re.compile(r"p50 ([\d.]+) us, p90 ([\d.]+) us, p99 ([\d.]+) us")
LOAD = re.compile(r"Load: ([\d.]+) us")


def main() -> int:
    """Write the times of every model; 0 if the runner gave them for all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    results = {}
    for model in read_kit(options.kit, rehearse=options.rehearse):
        results[model.name] = {
            "runner": _runner(model, graphs=True),
            "runner_without_graphs": _runner(model, graphs=False),
            "bare": {"why": "a rehearsal"} if options.rehearse else _bare(model),
        }
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
        context = engine.create_execution_context()
        loaded = time.perf_counter() - started
        kept = []
        for binding in blob.info.bindings:
            tensor = torch.empty(
                binding.shape, dtype=getattr(torch, binding.dtype), device="cuda"
            ).zero_()
            kept.append(tensor)
            context.set_tensor_address(binding.name, tensor.data_ptr())
        stream = torch.cuda.Stream()
        enqueue, whole = [], []
        for _ in range(CALLS):
            before = time.perf_counter()
            context.execute_async_v3(stream.cuda_stream)
            queued = time.perf_counter()
            stream.synchronize()
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
