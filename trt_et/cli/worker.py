"""The process that runs a program: ``python -m trt_et.cli.worker ANSWER``."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from trt_et.cli.arrays import to_numpy
from trt_et.cli.inputs import make_inputs
from trt_et.cli.program import LoadedMethod, Request
from trt_et.errors import OptionError, TrtEtError
from trt_et.runtime import counters


def perform(request: Request) -> dict[str, Any]:
    """Do a task in this process, and return its answer."""
    if request.task == "compare":
        from trt_et.cli.comparison import compare_request

        return compare_request(request)
    program = LoadedMethod(request)
    inputs = make_inputs(program.method, request.inputs, request.shapes, request.seed)
    return (_bench if request.task == "bench" else _run)(request, program, inputs)


def _run(request: Request, program: LoadedMethod, inputs: list[Any]) -> dict[str, Any]:
    arrays = [to_numpy(value) for value in program(inputs)]
    names = program.method.output_names
    if request.output:
        taken = ("", "file", "allow_pickle")  # Arguments of savez.
        keys = [f"output{i}" if name in taken else name for i, name in enumerate(names)]
        named: dict[str, Any] = dict(zip(keys, arrays, strict=True))
        np.savez(request.output, **named)
    summaries = zip(names, map(_summary, arrays), strict=True)
    return {"outputs": [{"name": name, **summary} for name, summary in summaries]}


def _summary(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiub":
        numbers = array.astype(np.float64)
        facts["nans"] = int(np.isnan(numbers).sum())
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            facts |= {name: float(getattr(finite, name)()) for name in ("min", "max", "mean")}
    return facts


def _bench(request: Request, program: LoadedMethod, inputs: list[Any]) -> dict[str, Any]:
    for _ in range(request.warm_up):
        program(inputs)
    before = counters()
    samples = []
    for _ in range(request.repeat):
        begin = time.perf_counter()
        program(inputs)
        samples.append(time.perf_counter() - begin)
    after = counters()
    return {
        "load_seconds": program.load_seconds,
        "seconds": samples,
        "per_call": {name: (after[name] - before[name]) / request.repeat for name in after},
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "planned_bytes": {use.device: use.planned_bytes for use in program.method.devices},
    }


def _main() -> None:
    file = Path(sys.argv[1])
    try:
        answer = perform(Request(**json.load(sys.stdin)))
    except (TrtEtError, OSError) as error:
        answer = {"error": str(error), "wrong_usage": isinstance(error, OptionError)}
    file.write_text(json.dumps(answer))


if __name__ == "__main__":
    _main()
