"""Runs in a process of its own: programs in the stock runtime, with the plugin loaded.

Reads a list of jobs (program, inputs, repeat; or program, calls) from a torch file and writes what
happened.
"""

from __future__ import annotations

import ctypes
import sys

import torch

import trt_et.runtime


def stats() -> dict | None:
    found = trt_et.runtime.counters()
    if "copies_h2d" not in found:
        return None
    live = [read_counter(f"live_bytes:{device}") for device in range(16)]
    return found | {"live": [size for size in live if size is not None]}


def read_counter(name: str) -> int | None:
    value = ctypes.c_uint64()
    exists = trt_et.runtime.load_plugin().trt_et_counter(name.encode(), ctypes.byref(value)) == 0
    return value.value if exists else None


def run(job: dict) -> dict:
    from executorch.runtime import Runtime

    outputs, before = [], None
    try:
        method = Runtime.get().load_program(job["program"]).load_method("forward")
        loaded = stats()
        every = []
        for inputs in job.get("calls") or [job["inputs"]] * job.get("repeat", 1):
            before = stats()
            outputs = [tensor.clone() for tensor in method.execute(inputs)]
            every.append(outputs)
        facts = {"outputs": outputs, "before": before, "after": stats(), "loaded": loaded}
        return facts | {"every": every}
    except Exception as error:  # The point is to tell the test about it.
        return {"error": str(error), "reason": trt_et.runtime.last_error()}


def main() -> None:
    jobs = torch.load(sys.argv[1])
    mode = sys.argv[3] if len(sys.argv) > 3 else None
    trt_et.runtime.load(mode)
    trt_et.runtime.load(mode)  # Twice is fine.
    results = [run(job) for job in jobs]
    facts = {
        "results": results,
        "status": trt_et.runtime.status(),
        "available": trt_et.runtime.is_available(),
        "devices": trt_et.runtime.device_count(),
        "end": stats(),
    }
    torch.save(facts, sys.argv[2])


if __name__ == "__main__":
    main()
