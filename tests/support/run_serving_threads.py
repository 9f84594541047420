"""Runs in a process of its own: threads that serve requests, half of them of a wrong shape.

The arguments are a program with one input of at most 8 rows, the seconds, and ``share`` where the
threads share one method. Prints one JSON object.
"""

from __future__ import annotations

import collections
import json
import sys
import threading
import time
from pathlib import Path

import torch

import trt_et.runtime
from trt_et.errors import RunError

THREADS = 8


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def main(path: str, seconds: float, share: bool) -> None:
    torch.set_num_threads(1)
    trt_et.runtime.load("simulated:1")
    good, bad = torch.randn(2, 8), torch.randn(9, 8)
    shared = trt_et.runtime.load_program(path).load_method("forward")
    (expected,) = shared.execute([good])
    expected = expected.clone()
    counts: collections.Counter[str] = collections.Counter()
    start, end = threading.Barrier(THREADS + 1), threading.Event()

    def work(index: int) -> None:
        program = trt_et.runtime.load_program(path)
        method = shared if share else program.load_method("forward")
        start.wait()
        number = index
        while not end.is_set():
            number += 1
            if number % 64 == 0 and not share:  # As a hot reload does.
                method = trt_et.runtime.load_program(path).load_method("forward")
            try:
                (output,) = method.execute([bad if number % 2 else good])
                counts["right" if torch.equal(output, expected) else "wrong"] += 1
            except RunError as error:
                counts["refused" if "input 0 is float32 [9, 8]" in str(error) else str(error)] += 1
            if method.metadata.input_tensor_meta(0).sizes() != (8, 8):
                counts["wrong metadata"] += 1

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(8)]
    for thread in threads:
        thread.start()
    start.wait(60)
    time.sleep(seconds / 5)
    before = resident_bytes(), trt_et.runtime.counters()
    time.sleep(seconds * 4 / 5)
    end.set()
    for thread in threads:
        thread.join(60)
    after = resident_bytes(), trt_et.runtime.counters()
    facts = {
        "counts": counts,
        "alive": sum(thread.is_alive() for thread in threads),
        "grown_bytes": after[0] - before[0],
        "during": before[1],
        "after": after[1],
    }
    sys.stdout.write(f"\n{json.dumps(facts)}\n")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), "share" in sys.argv)
