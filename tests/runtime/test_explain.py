"""ExecuTorch's errors carry the backend's reason."""

from __future__ import annotations

from pathlib import Path

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower

from tests.support.cli.sample_programs import program
from tests.support.lowering import export, lower, lower_case
from tests.support.python_process import run_forked
from trt_et import TensorRTPartitioner

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


REFUSALS = """
import sys
import torch
import trt_et.runtime
from trt_et.errors import RunError
from trt_et.runtime.explain import explained_errors
from executorch.runtime import Runtime

def attempt(function):
    try:
        with explained_errors("it fails"):
            return function()
    except RunError as error:
        print(str(error).partition(": ")[2])

def load(data):
    return Runtime.get().load_program(data).load_method("forward")

trt_et.runtime.load("simulated:1")
method = load(sys.argv[1])
for inputs in ([torch.randn(4, 16).half()], [torch.randn(5, 16)], [torch.randn(1, 16)],
               [torch.randn(4, 4, 4)], [], [1.0]):
    attempt(lambda: method.execute(inputs))
attempt(lambda: load(sys.argv[2]))
attempt(lambda: load(open(sys.argv[2], "rb").read()))
attempt(lambda: load(sys.argv[2] + ".none"))
attempt(lambda: load(sys.argv[3]))
attempt(lambda: Runtime.get().load_program(sys.argv[1]).load_method("main"))
attempt(lambda: load(sys.argv[4]))
"""


def test_refusals_of_executorch_name_what_was_given_and_what_is_expected(tmp_path):
    whole, cut = tmp_path / "model.pte", tmp_path / "cut.pte"
    whole.write_bytes(pte := lower_case("mlp"))
    cut.write_bytes(pte[:-100])
    text = tmp_path / "text.pte"
    text.write_text("version https://git-lfs.github.com/spec/v1, not the program itself")
    weightless = tmp_path / "weightless.pte"
    partitioner = TensorRTPartitioner(builder="reference", excluded_ops=["aten.linear"])
    config = ExecutorchBackendConfig(external_constants=True)
    manager = to_edge_transform_and_lower(export("mlp"), partitioner=[partitioner])
    manager.to_executorch(config).save(str(weightless))
    done = run_forked(REFUSALS, whole, cut, text, weightless, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    half, large, small, rank, none, number, *files = done.stdout.splitlines()
    expected = "expected float32 [4, 16]"
    assert half.endswith(f"with error 0x12: input 0 is float16 [4, 16]; {expected}")
    assert large.endswith(f": input 0 is float32 [5, 16]; {expected}")
    assert small.endswith(f": input 0 is float32 [1, 16]; {expected}")
    assert rank.endswith(f": input 0 is float32 [4, 4, 4]; {expected}")
    assert none.endswith(": 0 input(s) are given; expected 1")
    assert number.endswith(f": input 0 is float; {expected}")
    sizes = f"is truncated: it has {len(pte) - 100} bytes; expected {len(pte)}"
    assert files[0].endswith(f"{cut} {sizes}")
    assert files[1].endswith(f"the program {sizes}")
    assert files[3].endswith(f"{text} is no ExecuTorch program (.pte)")
    assert files[4] == "the program has no method 'main'; it has forward"
    assert "(.ptd), load it with load_program(..., data_path=FILE)" in files[5]
    assert "cut.pte.none cannot be read: No such file" in files[2]


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


LOADED = """
import sys
import torch
import trt_et.runtime
from trt_et.errors import OptionError, RunError

def attempt(function, *arguments, **named):
    try:
        function(*arguments, **named)
    except (OptionError, RunError) as error:
        print(error)

data = open(sys.argv[1], "rb").read()
method = trt_et.runtime.load_program(data, cuda="simulated:1").load_method("forward")
size = len(data)
del data
others = [bytes([255]) * size for _ in range(9)]
print(list(method.execute([torch.ones(4, 16)])[0].shape))
attempt(method.execute, [torch.ones(4, 17)])
attempt(trt_et.runtime.load_program(sys.argv[1]).load_method, "main")
attempt(trt_et.runtime.load_program, sys.argv[1] + ".none")
for wrong in (sys.argv[1], sys.argv[1] + ".none"):
    attempt(trt_et.runtime.load_program, sys.argv[1], data_path=wrong)
attempt(trt_et.runtime.load_program, open(sys.argv[1], "rb").read().replace(b"ET12", b"ET11", 1))
attempt(method.execute, {"x": torch.ones(4, 16)})
"""

LAID_OUT = """
import sys
import torch
import trt_et.runtime
from trt_et.errors import RunError

image = torch.arange(96.0).reshape(2, 3, 4, 4)
kinds = image, image.to(memory_format=torch.channels_last), image.flip(3).flip(3)[:, :, ::1]
kinds += image.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
for name in sys.argv[1:3]:
    for data in (name, open(name, "rb").read(), open(name, "rb")):
        method = trt_et.runtime.load_program(data, cuda="simulated:1").load_method("forward")
        for given in kinds:
            (output,) = method.execute([given])
            torch.testing.assert_close(output, image.flatten(1) @ torch.ones(48))
method = trt_et.runtime.load_program(sys.argv[3]).load_method("forward")
for given in (torch.ones(9, 4), torch.ones(2, 4).double()):
    try:
        method.execute([given, given])
    except RunError as error:
        print(error)
try:
    method.execute([torch.ones(2, 4), torch.ones(3, 4)])
except RunError as error:
    print(error)
"""


REPLACED = """
import os
import shutil
import sys
import torch
import trt_et.runtime
from trt_et.errors import BlobError, RunError
import trt_et.runtime.program as ours

image = torch.arange(96.0).reshape(2, 3, 4, 4)
kinds = image, image.to(memory_format=torch.channels_last)
trt_et.runtime.load("simulated:1")

def put(name):
    shutil.copyfile(name, "new.pte")
    os.replace("new.pte", "live.pte")

def check(method):
    for given in kinds:
        (output,) = method.execute([given])
        torch.testing.assert_close(output, image.flatten(1) @ torch.ones(48))

def attempt(function, *arguments):
    try:
        function(*arguments)
    except RunError as error:
        print(error)

def read_and(change):
    def read(source, found=ours.read_inputs):
        result = found(source)
        change()
        return result
    return read

for first, second in (sys.argv[1:], sys.argv[:0:-1]):
    for change in (lambda: put(second), lambda: os.remove("live.pte")):
        put(first)
        program = trt_et.runtime.load_program("live.pte")
        change()
        method = program.load_method("forward")
        check(method)
    # Replaced between ExecuTorch's read of the file and ours.
    put(first)
    change, read = iter([lambda: put(second), *[lambda: None] * 9]), ours.read_inputs
    ours.read_inputs = read_and(lambda: next(change)())
    put(first)
    check(trt_et.runtime.load_program("live.pte").load_method("forward"))
    ours.read_inputs = read
ours.read_inputs = read_and(lambda: put(second))
attempt(trt_et.runtime.load_program, "live.pte")

def refuse(source):
    raise BlobError("no")

ours.read_inputs = refuse
method = trt_et.runtime.load_program("live.pte").load_method("forward")
attempt(method.execute, [image])
attempt(method.execute, [image[0]])
"""


class Sum(torch.nn.Module):
    def forward(self, image):
        return image.flatten(1) @ torch.ones(48)


class Product(torch.nn.Module):
    def forward(self, x, y):
        return x * y


def both_layouts(folder: Path) -> list[Path]:
    files = []
    for layout in (torch.contiguous_format, torch.channels_last):
        example = torch.zeros(2, 3, 4, 4).to(memory_format=layout)
        files.append(folder / f"{layout}.pte")
        files[-1].write_bytes(lower(torch.export.export(Sum(), (example,))))
    return files


def test_a_file_that_is_replaced_gives_its_program_no_other_layout(tmp_path):
    done = run_forked(REPLACED, *both_layouts(tmp_path), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    changes, unknown, rank = done.stdout.splitlines()
    assert changes.startswith("live.pte changes while it is loaded: write the new program to")
    assert unknown.startswith("the layout in memory of the program's inputs is unknown")
    assert rank.endswith("input 0 is float32 [3, 4, 4]; expected float32 [2, 3, 4, 4]")


def test_images_of_any_strides_give_the_results_of_eager(tmp_path):
    """ExecuTorch copies an input without a look at its strides."""
    files = both_layouts(tmp_path)
    size = {0: torch.export.Dim("size", max=8)}
    pair = torch.ones(2, 4), torch.zeros(2, 4)
    pair = torch.export.export(Product(), pair, dynamic_shapes=(size, size))
    files.append(tmp_path / "pair.pte")
    files[-1].write_bytes(lower(pair))
    done = run_forked(LAID_OUT, *files, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    large, double, apart = done.stdout.splitlines()
    assert "input 0 is float32 [9, 4]; expected float32 at most [8, 4]" in large
    assert "input 0 is float64 [2, 4]; expected float32 at most [8, 4]" in double
    assert apart.endswith(" (inputs: float32 [2, 4], float32 [3, 4])")


def test_what_our_own_function_loads_explains_itself(tmp_path):
    """Also a method whose program came from bytes that nobody else keeps."""
    file = tmp_path / "model.pte"
    file.write_bytes(lower_case("mlp"))
    done = run_forked(LOADED, file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shape, wrong_input, wrong_method, wrong_file, *data, named = done.stdout.splitlines()
    assert shape == str(list(export("mlp").module()(torch.ones(4, 16)).shape))
    assert wrong_input.endswith(": input 0 is float32 [4, 17]; expected float32 [4, 16]")
    assert wrong_method.endswith("the program has no method 'main'; it has forward")
    assert wrong_file.endswith("model.pte.none cannot be read: No such file or directory")
    assert data[0].endswith("model.pte cannot be read: it is no file of named data (.ptd)")
    assert data[1].endswith("model.pte.none cannot be read: No such file or directory")
    assert data[2].endswith("is of another version of ExecuTorch: its format is ET11, not ET12")
    assert named.startswith("inputs is dict; expected a list, in the order of the inputs")
