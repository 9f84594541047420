"""The delegate beside the bare API in one process, with and without CUDA graphs: P13 and P15.

python scripts/gpu/native_costs.py KIT RESULT.json --tool ENGINE_COSTS --builder NAME

And its calls of CUDA, with inputs and outputs on the host and on the GPU: P12. On a real GPU they
are counted by the library counting_cudart, beside the tool.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tool import run_tool


def main() -> int:
    """Write the times of every model that is to be timed; 0 if there are some of all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--tool", type=Path, required=True, help="the program engine_costs")
    parser.add_argument("--builder", default="tensorrt", help="whose engines")
    parser.add_argument("--rounds", type=int, default=100, help="of 32 calls each")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for program in sorted(options.kit.glob(f"*.{options.builder}_device.pte")):
        name = program.name.split(".")[0]
        tensors = json.loads((options.kit / f"{name}.tensors.json").read_text())
        command = [str(options.tool), str(program), str(options.kit / f"{name}.engine")]
        command += [os.environ["TRT_ET_TENSORRT_LIBRARY"], str(options.rounds)]
        command += [f"{tensor}={size}" for tensor, size in tensors.items()]
        with_graphs, without = (_measure(command, graphs) for graphs in (True, False))
        results[name] = {
            "us_with_graphs": with_graphs,
            "us_without_graphs": without,
            "ratios": _ratios(with_graphs, without),
            "calls_with_io_on_the_gpu": _count(options.tool, program, "device"),
            "calls_with_io_on_the_host": _count(
                options.tool, options.kit / f"{name}.{options.builder}.pte", "host"
            ),
        }
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results and all(result["ratios"] for result in results.values()) else 1


def _measure(command: list[str], graphs: bool) -> dict[str, Any]:
    return _run(command, TRT_ET_CUDA_GRAPHS="1" if graphs else "0")


def _count(tool: Path, program: Path, where: str) -> dict[str, Any]:
    runtime = os.environ.get("TRT_ET_CUDART_LIBRARY", "libcudart.so.13")
    counting = tool.with_name("libcounting_cudart.so")
    variables = {"TRT_ET_CUDART_LIBRARY": str(counting), "TRT_ET_COUNTED_CUDART": runtime}
    return _run([str(tool), "count", str(program), where], **variables)


def _run(command: list[str], **changes: str) -> dict[str, Any]:
    try:
        done = run_tool(command, **changes)
    except subprocess.TimeoutExpired as error:
        return {"why": f"it did not end within {error.timeout:.0f} s"}
    if done.returncode:
        return {"why": f"exit {done.returncode}: {done.stderr[-1000:]}"}
    pairs = (line.split() for line in done.stdout.splitlines())
    return {name: float(value) for name, value in pairs}


def _ratios(with_graphs: dict[str, Any], without: dict[str, Any]) -> dict[str, float]:
    """Of what was measured within one process each."""
    if "why" in with_graphs or "why" in without:
        return {}
    graph = with_graphs.get("bare_graph_queued")
    found = {
        "P13_us_over_bare": without["delegate_queued"] - without["bare_queued"],
        "P13_over_bare": without["delegate_queued"] / without["bare_queued"],
        "P15_graph_over_plain": with_graphs["delegate_queued"] / with_graphs["bare_queued"],
    }
    if graph is not None:  # TensorRT cannot record every engine.
        found["P13_us_over_bare_graph"] = with_graphs["delegate_queued"] - graph
        found["P15_bare_graph_over_plain"] = graph / with_graphs["bare_queued"]
    return found


if __name__ == "__main__":
    sys.exit(main())
