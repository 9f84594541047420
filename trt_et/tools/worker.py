"""A process that loads one program and runs it: ``python -m trt_et.tools.worker ANSWER``."""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from trt_et.errors import OptionError, TrtEtError
from trt_et.runtime.explain import explained_errors
from trt_et.tools.requests import Request, choose_method

__all__ = ["main", "perform"]


class _Program:
    """A loaded method of a program."""

    def __init__(self, request: Request) -> None:
        self.method = choose_method(request, verify=False)
        import trt_et.runtime

        trt_et.runtime.load(request.cuda or None)
        from executorch.runtime import Runtime, Verification

        begin = time.perf_counter()
        with explained_errors("the program cannot be loaded"):
            program = Runtime.get().load_program(
                request.file, verification=Verification.InternalConsistency
            )
            self._loaded = program.load_method(self.method.name)
        self.load_seconds = time.perf_counter() - begin

    def __call__(self, inputs: list[Any]) -> list[Any]:
        with explained_errors("the program cannot be run"):
            return list(self._loaded.execute(inputs))


def main() -> None:
    """Answer the request on standard input."""
    answer = Path(sys.argv[1])
    request = Request(**json.load(sys.stdin))
    try:
        found = perform(request)
    except (TrtEtError, OSError) as error:
        found = {"error": str(error), "wrong_usage": isinstance(error, OptionError)}
    answer.write_text(json.dumps(found))


def perform(request: Request) -> dict[str, Any]:
    """Do what is asked for, in this process."""
    if request.task == "compare":
        from trt_et.tools.comparison import compare

        return compare(request, _Program)
    from trt_et.tools.inputs import make_inputs

    program = _Program(request)
    shapes = {int(index): shape for index, shape in request.shapes.items()}
    inputs = make_inputs(program.method, request.inputs, shapes, request.seed)
    if request.task == "bench":
        return _bench(request, program, inputs)
    return _run(request, program, inputs)


def _run(request: Request, program: _Program, inputs: list[Any]) -> dict[str, Any]:
    import numpy as np

    from trt_et.tools.inputs import to_numpy

    arrays = [to_numpy(value) for value in program(inputs)]
    if request.output:
        named: dict[str, Any] = {f"output{i}": array for i, array in enumerate(arrays)}
        np.savez(request.output, **named)
    return {"outputs": [_summary(array) for array in arrays]}


def _summary(array: Any) -> dict[str, Any]:  # noqa: ANN401
    import numpy as np

    facts: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size and array.dtype.kind in "fiub":
        numbers = array.astype(np.float64)
        facts["nans"] = int(np.isnan(numbers).sum())
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            facts |= {"min": finite.min(), "max": finite.max(), "mean": finite.mean()}
    return {key: float(v) if isinstance(v, np.floating) else v for key, v in facts.items()}


def _bench(request: Request, program: _Program, inputs: list[Any]) -> dict[str, Any]:
    from trt_et.tools.counters import read_counters

    for _ in range(request.warm_up):
        program(inputs)
    before = read_counters()
    samples = []
    for _ in range(request.repeat):
        begin = time.perf_counter()
        program(inputs)
        samples.append(time.perf_counter() - begin)
    after = read_counters()
    counted = {name: (after[name] - before[name]) / request.repeat for name in after}
    return {
        "load_seconds": program.load_seconds,
        "seconds": samples,
        "per_call": counted,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "planned_bytes": {use.device: use.planned_bytes for use in program.method.devices},
    }


if __name__ == "__main__":
    main()
