"""ExecuTorch's errors carry the backend's reason."""

from __future__ import annotations

from tests.support.cli.sample_programs import program
from tests.support.python_process import run_forked

SCRIPT = """
import sys
import trt_et.runtime
from trt_et.errors import RunError
from trt_et.runtime.explain import explained_errors
from executorch.runtime import Runtime

def attempt():
    try:
        with explained_errors("it fails"):
            Runtime.get().load_program(sys.argv[1]).load_method("forward")
    except RunError as error:
        assert isinstance(error.__cause__, RuntimeError)
        print(error)

attempt()
trt_et.runtime.load("simulated:1")
attempt()
try:
    with explained_errors("other"):
        raise RuntimeError("something else")
except RunError as error:
    print(error)
"""


def test_the_reason_is_in_the_message_and_an_earlier_one_is_not_taken_for_it(tmp_path):
    file = tmp_path / "split.pte"
    file.write_bytes(program("split"))  # For cuda:1; there is only one simulated GPU.
    done = run_forked(SCRIPT, file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    not_loaded, no_gpu, other = done.stdout.splitlines()
    assert not_loaded.startswith("it fails: ")
    assert "call trt_et.runtime.load() before" in not_loaded
    assert "cuda:1" in no_gpu
    assert no_gpu.startswith("it fails: ")
    assert other.startswith("other: something else")
    assert other == "other: something else" or "(an earlier error was: " in other
