"""ExecuTorch's CallerStreamGuard, in an extension that Python opened for itself."""

from __future__ import annotations

import subprocess

import torch

from tests.support.python_process import run_forked

# In place of ExecuTorch's CUDA extension: a caller's stream that no simulated GPU has.
EXTENSION = """
#include <optional>
namespace executorch::extension::cuda {
std::optional<void*> getCallerStream() { return reinterpret_cast<void*>(0x5000); }
}
"""
RUN = """
import ctypes, sys
import torch
import trt_et.runtime
ctypes.CDLL(sys.argv[1])  # RTLD_LOCAL, as trt_et.runtime opens the one of a wheel
trt_et.runtime.load("simulated")
from executorch.runtime import Runtime
method = Runtime.get().load_program(sys.argv[2]).load_method("forward")
try:
    method.execute(torch.load(sys.argv[3]))
except RuntimeError:
    print(trt_et.runtime.last_error())
"""


def test_the_guard_of_an_extension_that_is_loaded_locally(programs, tmp_path):
    source, library = tmp_path / "extension.cpp", tmp_path / "libexecutorch_extension_cuda.so"
    source.write_text(EXTENSION)
    command = ["c++", "-std=c++17", "-shared", "-fPIC", f"-Wl,-soname,{library.name}"]
    command += ["-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=600)
    torch.save(programs["host"].inputs, tmp_path / "inputs")
    arguments = [str(library), str(programs["host"].path), str(tmp_path / "inputs")]
    done = run_forked(RUN, *arguments, cwd=tmp_path)
    assert "not a stream of a simulated GPU" in done.stdout, done.stderr
