"""Runs in a process of its own: programs through the Python provider.

Reads jobs (program, inputs) from a torch file, writes what happened. With a third argument the
first job is also loaded while another thread is loading it, and the second job's method executed
while another thread is executing it.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import torch

import trt_et.runtime


def run(job: dict) -> dict:
    from executorch.runtime import Runtime

    try:
        method = Runtime.get().load_program(job["program"]).load_method("forward")
        outputs = []
        for inputs in job["inputs"]:
            try:
                outputs.append(method.execute(inputs)[0].clone())
            except RuntimeError:
                outputs.append(trt_et.runtime.last_error())
        return {"outputs": outputs}
    except Exception as error:  # The point is to tell the test about it.
        return {"error": str(error), "reason": trt_et.runtime.last_error()}


def execute(method: Any, job: dict) -> dict:
    try:
        return {"outputs": [method.execute(job["inputs"][0])[0].clone()]}
    except RuntimeError as error:
        return {"error": str(error), "reason": trt_et.runtime.last_error()}


def two_threads_at_one_method(job: dict) -> dict:
    from executorch.runtime import Runtime

    method = Runtime.get().load_program(job["program"]).load_method("forward")
    results: list[dict] = []
    thread = threading.Thread(target=lambda: results.append(execute(method, job)))
    thread.start()
    time.sleep(0.3)
    meanwhile = execute(method, job)
    thread.join()
    return {"first": results[0], "meanwhile": meanwhile, "after": execute(method, job)}


def main() -> None:
    trt_et.runtime.load()
    imported = [name for name in ("tensorrt", "tensorrt_rtx") if name in sys.modules]
    facts = {"imported": imported, "results": [run(job) for job in torch.load(sys.argv[1])]}
    if len(sys.argv) > 3:
        job = torch.load(sys.argv[1])[0]
        results: list[dict] = []
        thread = threading.Thread(target=lambda: results.append(run(job)))
        thread.start()
        time.sleep(0.3)
        meanwhile = run(job)
        thread.join()
        facts["threads"] = {"first": results[0], "meanwhile": meanwhile, "after": run(job)}
        facts["method"] = two_threads_at_one_method(torch.load(sys.argv[1])[1])
    module = sys.modules.get("tensorrt_rtx")
    facts["runtimes"] = module.Runtime.made if module else 0
    facts["is_fake"] = module is not None and "fake_bindings" in str(module.__file__)
    torch.save(facts, sys.argv[2])


if __name__ == "__main__":
    main()
