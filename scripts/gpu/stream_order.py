"""Whether runs are ordered with what the rest of a process does on the GPU.

python scripts/gpu/stream_order.py KIT RESULT.json --tool ENGINE_COSTS --builder NAME

The tool copies as ExecuTorch's own CUDA allocator does, on the legacy stream, before and behind
each run, and lets two threads load, run and unload at once.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tool import run_tool


def main() -> int:
    """Write how many results were wrong; 0 if none."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--tool", type=Path, required=True, help="the program engine_costs")
    parser.add_argument("--builder", default="tensorrt", help="whose engines")
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    results = {
        f"{program.name.split('.')[0]}, {'graphs' if graphs else 'plain'}": _order(
            [str(options.tool), "order", str(program), str(options.rounds)], graphs
        )
        for program in sorted(options.kit.glob(f"*.{options.builder}_device.pte"))
        for graphs in (True, False)
    }
    options.result.write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    return 0 if results and all(result["ok"] for result in results.values()) else 1


def _order(command: list[str], graphs: bool) -> dict[str, Any]:
    try:
        done = run_tool(command, TRT_ET_CUDA_GRAPHS="1" if graphs else "0")
    except subprocess.TimeoutExpired as error:
        return {"ok": False, "why": f"it did not end within {error.timeout:.0f} s"}
    if done.returncode not in (0, 2):
        return {"ok": False, "why": f"exit {done.returncode}: {done.stderr[-1000:]}"}
    pairs = (line.split() for line in done.stdout.splitlines())
    return {"ok": done.returncode == 0} | {name: int(value) for name, value in pairs}


if __name__ == "__main__":
    sys.exit(main())
