"""Runs peers' tests in processes of 200 cases each, and writes docs/peer-tests.md.

TORCH_TENSORRT=CHECKOUT [EXECUTORCH=CHECKOUT] python -m tests.support.peers [RESULTS]

A case that ends its process, or takes longer than LIMIT seconds, loses itself alone.
A second run goes on where the first stopped. `--every N` takes each n-th case and writes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from tests.support.peers import report

ROOT = Path(__file__).parents[3]
LIMIT = float(os.environ.get("LIMIT", "300"))
NOTHING_LEFT = 5  # pytest's exit code for a run without tests; here also the last run's.


def folders() -> dict[str, Path]:
    """Return the folders of the peers' tests."""
    checkout = os.environ.get("TORCH_TENSORRT")
    installed = find_spec("executorch").submodule_search_locations[0]
    found = {
        "torch_tensorrt": Path(checkout or "unset") / "tests/py/dynamo/conversion",
        "executorch": Path(os.environ.get("EXECUTORCH") or installed)
        / "backends/test/suite/models",
    }
    missing = [str(folder) for folder in found.values() if not folder.is_dir()]
    if missing:
        raise SystemExit(
            f"{missing[0]} is missing. Set TORCH_TENSORRT to a checkout of pytorch/TensorRT of the "
            "installed version, and EXECUTORCH to one of pytorch/executorch if the installed "
            "package's suite is not to run."
        )
    return found


def run(tests: Path, results: Path, options: list[str]) -> None:
    """Run the cases of a folder that the results do not have yet."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.peers.plugin", "-q"]
    command += ["-p", "no:cacheprovider", "--noconftest", "--continue-on-collection-errors"]
    command += ["-W", "ignore", "-c", os.devnull, "--rootdir", str(tests), "--peers", str(results)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    while True:
        before = _size(results)
        with results.with_suffix(".log").open("w") as log:
            process = subprocess.Popen(
                [*command, *options, str(tests)], env=environment, stdout=log, stderr=log
            )
            ended = _wait(process, results)
        entry = _last(results)
        if entry["outcome"] == "running":
            entry |= {"outcome": ended, "why": f"exit status {process.returncode}"}
            with results.open("a") as file:
                file.write(json.dumps(entry) + "\n")
        elif process.returncode == NOTHING_LEFT or _size(results) == before:
            return


def _wait(process: subprocess.Popen[bytes], results: Path) -> str:
    size, since = -1, 0.0
    while process.poll() is None:
        time.sleep(0.2)
        if size != (size := _size(results)):
            since = time.monotonic()
        elif time.monotonic() - since > LIMIT and _last(results)["outcome"] == "running":
            process.kill()
            process.wait()
            return "timed out"
    return "crashed"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _last(path: Path) -> dict[str, str]:
    return json.loads(path.read_text().splitlines()[-1]) if _size(path) else {"outcome": ""}


def main(arguments: list[str]) -> None:
    results = Path(arguments[0] if arguments else ROOT / "build/peers").resolve()
    tests = folders()
    results.mkdir(parents=True, exist_ok=True)
    for name, folder in tests.items():
        run(folder, results / f"{name}.jsonl", arguments[1:])
    found = [results / f"{name}.jsonl" for name in tests]
    raise SystemExit(report.main(found, write="--every" not in arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
