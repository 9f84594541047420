"""Runs in a process of its own: threads that share the stock runtime, each trial in a fork.

The arguments are a program and the kind of trial. Prints the exit statuses of the trials; that of
SIGALRM for one that does not end.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from functools import partial

import torch
from executorch.runtime import Runtime

import trt_et.runtime
from tests.support.forked import in_child

LIMIT_S = 60
# Of each kind: threads, loads by each of them, runs of each loaded method, trials.
KINDS = {"load": (4, 20, 0, 3), "first use": (2, 1, 0, 6), "load and run": (6, 10, 3, 2)}


def trial(path: str, threads: int, loads: int, runs: int) -> None:
    trt_et.runtime.load("simulated:2")
    inputs = [torch.ones(2, 8)]
    programs = [Runtime.get().load_program(path) for _ in range(threads)]
    start = threading.Barrier(threads)
    results: list[torch.Tensor] = []

    def work(program) -> None:
        start.wait()
        for _ in range(loads):
            # Loads need no lock. Runs do: ExecuTorch's bindings are not made for them.
            with trt_et.runtime.executorch_lock if runs else contextlib.nullcontext():
                method = program.load_method("forward")
            for _ in range(runs):
                with trt_et.runtime.executorch_lock:
                    results.append(method.execute(inputs)[0].clone())
            with trt_et.runtime.executorch_lock if runs else contextlib.nullcontext():
                del method

    workers = [threading.Thread(target=work, args=(program,)) for program in programs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == threads * loads * runs
    assert all(torch.equal(result, results[0]) for result in results)


def log_trial(*arguments) -> None:
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    trial(*arguments)


if __name__ == "__main__":
    torch.set_num_threads(1)
    *shape, trials = KINDS[sys.argv[2]]
    run = partial(log_trial, sys.argv[1], *shape)
    sys.stdout.write(",".join(str(in_child(run, LIMIT_S)) for _ in range(trials)))
