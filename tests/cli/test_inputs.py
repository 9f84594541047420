"""Inputs of a program from files, numbers, or at random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.support.lowering import lower
from tests.support.models import Function
from trt_et.blob.partition_spec import PartitionNames
from trt_et.cli.inputs import check_inputs, make_inputs
from trt_et.errors import OptionError, RunError
from trt_et.inspection import Call, DelegateInfo, MethodInfo, TensorValue, inspect_program
from trt_et.runtime.layout import lay_out


def method(*values: TensorValue | None, names: tuple[str, ...] = ()) -> MethodInfo:
    """A method; ``names`` are those of its first inputs."""
    indices = tuple(range(len(values)))
    engine = DelegateInfo("", (), 0, None, 0, "", b"", partition=PartitionNames(inputs=names))
    calls = (Call("delegate", 0, indices[: len(names)]),)
    return MethodInfo("forward", (engine,), (), (), indices, (), calls=calls, values=values)


def tensor(dtype: str, *sizes: int, dynamic: bool = False) -> TensorValue:
    item = getattr(torch, dtype).itemsize
    return TensorValue(dtype, sizes, dynamic, "cpu", int(np.prod(sizes)) * item, False)


FLOATS = tensor("float32", 2, 3)


def test_random_inputs_are_the_same_for_one_seed_and_have_the_types_of_the_program():
    wanted = method(FLOATS, tensor("int64", 4), tensor("bool", 2), tensor("bfloat16", 1))
    first, again, other = (make_inputs(wanted, (), {}, seed) for seed in (0, 0, 1))
    assert [value.dtype for value in first] == [
        torch.float32,
        torch.int64,
        torch.bool,
        torch.bfloat16,
    ]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert set(first[1].tolist()) <= {0, 1}


def test_arrays_and_raw_bytes_are_read_in_the_order_of_the_inputs(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", one=array, two=array + 1)
    (tmp_path / "c.bin").write_bytes(array.tobytes())
    sources = [str(tmp_path / name) for name in ("a.npy", "b.npz", "c.bin")]
    found = make_inputs(method(*[FLOATS] * 4), sources, {}, 0)
    assert [value[0, 0].item() for value in found] == [0, 0, 1, 0]
    assert all(value.shape == (2, 3) for value in found)


@pytest.mark.parametrize(
    ("saved", "names", "expected"),
    [
        ({"b": 1, "a": 0}, ("a", "b"), [0, 1]),
        ({"c": 1, "a": 0}, ("a",), [0, 1]),  # Only one array is left for the input without a name.
        ({"arr_0": 1, "arr_1": 0}, ("a", "b"), [1, 0]),
        ({"two": 1, "one": 0}, ("a", "b"), [1, 0]),
    ],
)
def test_arrays_with_the_names_of_the_inputs_may_have_another_order(
    tmp_path, saved, names, expected
):
    file = tmp_path / "in.npz"
    np.savez(file, **{name: np.full((2, 3), one, np.float32) for name, one in saved.items()})
    found = make_inputs(method(FLOATS, FLOATS, names=names), [str(file)], {}, 0)
    assert [value[0, 0].item() for value in found] == expected
    after = method(None, FLOATS, FLOATS, names=("first", *names))
    found = make_inputs(after, ["7", str(file)], {}, 0)
    assert [value[0, 0].item() for value in found[1:]] == expected


def test_a_file_that_names_some_inputs_and_not_the_others_is_refused(tmp_path):
    file = tmp_path / "in.npz"
    np.savez(file, c=np.zeros((2, 3), np.float32), a=np.zeros((2, 3), np.float32))
    message = r"has the arrays c, a; the inputs are input 0 \(a\), input 1 \(b\): name each"
    with pytest.raises(OptionError, match=message):
        make_inputs(method(FLOATS, FLOATS, names=("a", "b")), [str(file)], {}, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([torch.ones(2, 3)], "got 1 input; forward takes 2: x, count"),
        ([torch.ones(3, 2), 7], r"input 0 \(x\) has the sizes \[3, 2\]; expected \[2, 3\]"),
        ([torch.ones(2, 3).half(), 7], r"input 0 \(x\) is torch.float16; expected torch.float32"),
    ],
)
def test_values_that_a_method_does_not_take_are_refused(values, message):
    named = method(FLOATS, None, names=("x", "count"))
    check_inputs(named, [torch.ones(2, 3), 7])
    with pytest.raises(OptionError, match=message):
        check_inputs(named, values)


def test_a_number_fills_an_input_that_is_no_tensor():
    assert make_inputs(method(None), ["7"], {}, 0) == [7]
    with pytest.raises(OptionError, match="input 0 is no tensor"):
        make_inputs(method(None), (), {}, 0)


def test_dynamic_sizes_may_be_smaller_and_static_ones_may_not():
    dynamic = method(tensor("float32", 8, 4, dynamic=True))
    assert make_inputs(dynamic, (), {"0": [3, 4]}, 0)[0].shape == (3, 4)
    for sizes in ([9, 4], [3], [-1, 4]):
        with pytest.raises(OptionError, match=r"expected at most \[8, 4\]"):
            make_inputs(dynamic, (), {"0": sizes}, 0)
    with pytest.raises(OptionError, match=r"expected \[2, 3\]"):
        make_inputs(method(FLOATS), (), {"0": [1, 3]}, 0)
    with pytest.raises(OptionError, match="there is no input 4"):
        make_inputs(method(FLOATS), (), {"4": [1, 3]}, 0)


def test_what_does_not_fit_is_refused(tmp_path):
    np.save(tmp_path / "ints.npy", np.zeros((2, 3), np.int64))
    (tmp_path / "short.bin").write_bytes(b"12")
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    for name, error, match in (
        ("ints.npy", OptionError, "is torch.int64; expected torch.float32"),
        ("short.bin", OptionError, "has 2 bytes; expected 24"),
        ("bad.npy", RunError, "cannot be read"),
        ("none.npy", RunError, "No such file"),
        ("tensor.pt", OptionError, "read as raw bytes.* save the tensor with numpy.save"),
    ):
        with pytest.raises(error, match=match):
            make_inputs(method(FLOATS), [str(tmp_path / name)], {}, 0)
    with pytest.raises(OptionError, match=r"got 1 input; forward takes 2$"):
        make_inputs(method(None, None), ["1"], {}, 0)


NHWC = replace(tensor("float32", 1, 3, 2, 2), dim_order=(0, 2, 3, 1))
IMAGE = torch.arange(12.0).reshape(1, 3, 2, 2)


@pytest.mark.parametrize(
    ("expected", "given", "message"),
    [
        (tensor("float32", 1, 3, 2, 2), IMAGE.to(memory_format=torch.channels_last), "channels_l"),
        (FLOATS, torch.zeros(3, 2).T, r"input 0 has the strides \[1, 2\]; pass input.contiguous()"),
        (FLOATS, torch.zeros(1, 3).expand(2, 3), r"input 0 has the strides \[0, 1\]; pass input"),
        (NHWC, IMAGE, r"expected channels_last, .*input.contiguous\(memory_format=torch.channels_"),
    ],
)
def test_strides_that_the_program_does_not_expect_are_refused_and_laid_out(
    expected, given, message
):
    wanted = method(expected)
    with pytest.raises(OptionError, match=message):
        check_inputs(wanted, [given])
    (laid_out,) = lay_out(wanted.inputs, [given])
    check_inputs(wanted, [laid_out])
    assert torch.equal(laid_out, given)


def test_made_inputs_have_the_dimension_order_of_the_program(tmp_path):
    (random,) = make_inputs(method(NHWC), (), {}, 0)
    np.save(tmp_path / "a.npy", IMAGE.numpy())
    (tmp_path / "b.bin").write_bytes(IMAGE.permute(0, 2, 3, 1).contiguous().numpy().tobytes())
    files = [str(tmp_path / name) for name in ("a.npy", "b.bin")]
    for value in (random, *make_inputs(method(NHWC, NHWC), files, {}, 0)):
        assert value.is_contiguous(memory_format=torch.channels_last)
        assert value is random or torch.equal(value, IMAGE)


def test_a_program_that_was_exported_with_channels_last_says_so():
    image = IMAGE.to(memory_format=torch.channels_last)
    for example, order in ((IMAGE, ()), (image, (0, 2, 3, 1))):
        program = torch.export.export(Function(torch.relu), (example,))
        (expected,) = inspect_program(lower(program))[0].inputs
        assert expected.dim_order == order
