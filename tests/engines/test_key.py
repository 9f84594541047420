"""Equal keys, equal engines: whatever a builder can see is in the key, and nothing else."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.support.builders import CHANGED_OPTIONS, Two, export, program, request
from trt_et.engines import BuildOptions, EngineBuilder
from trt_et.engines.key import (
    WeightDigests,
    builder_fingerprint,
    engine_key,
    request_digest,
    sample_digest,
)

DTYPES = [
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.float8_e4m3fn,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
]


def digest_of(tensor: torch.Tensor) -> str:
    return WeightDigests().of({"w": tensor})["w"]


def key(program, **changes) -> str:
    asked = request(program, **changes)
    digest = request_digest(asked)
    assert digest is not None
    return engine_key("builder", "1", digest, WeightDigests().of(asked.program.sources))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(1, 4), max_size=3),
    st.data(),
)
def test_every_element_dtype_and_shape_of_a_weight_counts(dtype, shape, data):
    size = math.prod(shape)
    numbers = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    tensor = torch.tensor(numbers, dtype=torch.float32).reshape(shape).to(dtype)
    assert digest_of(tensor.clone()) == digest_of(tensor)
    at = data.draw(st.integers(0, size - 1))
    changed = tensor.to(torch.float32).clone()
    changed.view(-1)[at] = 1 - changed.view(-1)[at]
    assert digest_of(changed.to(dtype)) != digest_of(tensor)
    assert digest_of(tensor.reshape([*shape, 1])) != digest_of(tensor)
    others = {digest_of(tensor.view(-1).to(other)) for other in DTYPES}
    assert len(others) == len(DTYPES)


def test_the_order_of_elements_counts_and_not_the_layout():
    tensor = torch.arange(24.0).reshape(1, 2, 3, 4)
    same = [
        tensor.to(memory_format=torch.channels_last),
        torch.cat([tensor, tensor])[:1],
        torch.stack([tensor, -tensor], -1)[..., 0],
        nn.Parameter(tensor.clone()),
    ]
    assert {digest_of(other) for other in same} == {digest_of(tensor)}
    assert digest_of(tensor.transpose(2, 3).reshape(1, 2, 3, 4)) != digest_of(tensor)
    assert digest_of(torch.zeros(1).expand(5)) == digest_of(torch.zeros(5))
    number = torch.tensor([1 + 2j])
    assert digest_of(number.conj()) == digest_of(torch.tensor([1 - 2j])) != digest_of(number)


def test_a_weight_of_several_pieces_is_read_to_its_end():
    for size in (10 << 20, 70 << 20):
        tensor = torch.zeros(size, dtype=torch.uint8)
        found = {digest_of(tensor)}
        for at in (0, (4 << 20) - 1, 4 << 20, size - 1):
            tensor[at] = 1
            found.add(digest_of(tensor))
        assert len(found) == 5


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5),
        torch.arange(7),
        torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        torch.zeros(0, 3),
        torch.zeros(3, 0),
        torch.ones(2, 3).to(torch.float8_e4m3fn),
        torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8),
        torch.tensor([1 + 2j]).conj(),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}",
)
def test_equal_tensors_look_equal_whatever_their_layout(tensor):
    same = tensor.clone(memory_format=torch.contiguous_format)
    assert sample_digest({"w": tensor}) == sample_digest({"w": same})
    if tensor.dtype == torch.float32 and tensor.numel() > 1:
        other = same.clone()
        other.view(-1)[-1] += 1
        assert sample_digest({"w": other}) != sample_digest({"w": same})


def test_quantized_weights_count_with_their_scale():
    values = torch.randn(4)
    found = {
        digest_of(torch.quantize_per_tensor(values, scale, zero, torch.qint8))
        for scale in (0.1, 0.2)
        for zero in (0, 1)
    }
    assert len(found) == 4


def test_every_option_counts():
    base = BuildOptions()
    # A new option has to be added to CHANGED_OPTIONS; it is then in the key by itself.
    assert {field.name for field in fields(BuildOptions)} == {*CHANGED_OPTIONS}
    found = {key(program(), options=replace(base, **{n: v})) for n, v in CHANGED_OPTIONS.items()}
    found |= {key(program()), key(program(), device_id=1)}
    found |= {key(program(), options=replace(base, optimization_level=level)) for level in (0, 1)}
    found |= {
        key(program(), options=replace(base, torch_tensorrt_settings=given))
        for given in ({"sparse_weights": True}, {"max_aux_streams": 1}, {"max_aux_streams": 2})
    }
    assert len(found) == len(CHANGED_OPTIONS) + 2 + 2 + 3


def test_sets_and_the_order_of_settings_do_not_matter():
    def keyed(given):
        return key(program(), options=BuildOptions(torch_tensorrt_settings=given))

    names = "disabled_constant_fold_exclusions"
    assert keyed({"max_aux_streams": 1, names: {"c", "d"}}) == keyed(
        {names: {"d", "c"}, "max_aux_streams": 1}
    )


class Scaled(nn.Module):
    def __init__(self, scale, operator=torch.mul) -> None:
        super().__init__()
        self.scale = scale
        self.operator = operator

    def forward(self, x):
        return self.operator(x, self.scale)


def test_operators_arguments_dtypes_shapes_and_dynamic_ranges_count():
    x, dim = torch.ones(2, 4), torch.export.Dim
    models = [Scaled(2), Scaled(2.0), Scaled(-0.0), Scaled(0.0), Scaled(2, torch.div)]
    programs = [export(model, x) for model in models]
    others = (torch.ones(2, 5), torch.ones(8), x.half())
    programs += [export(Scaled(2.0), other) for other in others]
    ranges = [(x, 0, 8), (x, 0, 9), (torch.ones(3, 4), 0, 8), (x, 1, 8)]
    programs += [
        export(Scaled(2.0), given, dynamic_shapes=({at: dim("a", max=largest)},))
        for given, at, largest in ranges
    ]
    assert len({key(program) for program in programs}) == len(programs)


def test_names_of_dynamic_sizes_do_not_count():
    dim = torch.export.Dim
    x = torch.ones(2, 4)
    one, other = (
        export(Scaled(2.0), x, dynamic_shapes=({0: dim(name, max=8)},)) for name in ("a", "zz")
    )
    assert key(one) == key(other)


def test_one_weight_element_of_a_partition_counts():
    changed = Two()
    with torch.no_grad():
        changed.second.weight[3, 2] += 1e-6
    x = torch.ones(2, 4)
    assert key(export(Two(), x)) == key(program())
    assert key(export(changed, x)) != key(program())


def test_a_builder_that_says_nothing_is_not_cached():
    class Silent(EngineBuilder):
        name = "silent"

        def build(self, request):
            return b""

    assert builder_fingerprint(Silent()) == ""
