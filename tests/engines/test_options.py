"""One typed field of ``BuildOptions`` is all that an option needs."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest
import torch

from tests.support.builders import CHANGED_OPTIONS
from trt_et import OptionError, TensorRTPartitioner
from trt_et.options import BuildOptions, option, options_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "options.md"


def _even(name, value):
    if value % 2:
        raise OptionError(f"{name} is {value}; expected an even number")
    return value


@dataclass(frozen=True)
class Extended(BuildOptions):
    """One option more, added in one place."""

    scratch_option: int = option(2, _even, "An even number.", setting="num_avg_timing_iters")


def test_a_new_field_is_checked_and_reaches_torch_tensorrt():
    with pytest.raises(OptionError, match="scratch_option is 3; expected an even number"):
        Extended(scratch_option=3)
    assert Extended().compilation_settings() == {}
    assert Extended(scratch_option=4).compilation_settings() == {"num_avg_timing_iters": 4}


def test_the_documentation_lists_the_options_as_they_are():
    assert options_table() in DOCUMENT.read_text()


def test_every_option_is_taken_by_the_partitioner():
    assert set(CHANGED_OPTIONS) == {known.name for known in fields(BuildOptions)}
    for name, value in CHANGED_OPTIONS.items():
        made = TensorRTPartitioner(builder="reference", **{name: value})
        assert made._options == replace(BuildOptions(), **{name: value})


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        *((name, "float16") for name in ("fp16", "half", "float16", torch.float16)),
        *((name, "bfloat16") for name in ("bf16", "bfloat16", torch.bfloat16)),
        (None, None),
    ],
)
def test_a_precision_has_the_names_that_people_use(given, kept):
    assert BuildOptions(precision=given).precision == kept


@pytest.mark.parametrize("given", [torch.float32, "int8", 16, ""])
def test_another_precision_is_refused_with_the_known_ones(given):
    with pytest.raises(OptionError, match=r"expected None .*'float16' or 'bfloat16'"):
        BuildOptions(precision=given)


def test_a_capability_may_be_a_float():
    assert BuildOptions([8.6, "8.9", 12.0]).compute_capabilities == ("8.6", "8.9", "12.0")
    for wrong in (8.65, 86, float("nan"), (8, 6)):
        with pytest.raises(OptionError, match="is not of the form"):
            BuildOptions([wrong])
    for compact in (86, "sm_86"):
        with pytest.raises(OptionError, match=r"did you mean '8\.6'"):
            BuildOptions([compact])


def test_wrong_options_are_refused_before_a_builder_is_imported(monkeypatch):
    monkeypatch.setattr("trt_et.partitioner.make_builder", None)
    with pytest.raises(OptionError, match="compute capability"):
        TensorRTPartitioner(compute_capabilities=["x"])


def test_a_partitioner_shows_the_options_that_were_given():
    made = TensorRTPartitioner(
        builder="reference", precision="fp16", compute_capabilities=["8.6", "8.9"] * 99
    )
    text = repr(made)
    assert text.startswith("TensorRTPartitioner(builder='reference', compute_capabilities=('8.6'")
    assert text.endswith("precision='float16')")
    assert len(text) < 300


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("optimisation_level", "did you mean optimization_level"),
        ("enabled_precisions", "use precision='float16'"),
        ("torch_executed_ops", "use excluded_ops"),
        ("require_full_compilation", "use full_graph"),
        ("enable_weight_streaming", "use weight_streaming"),
        ("cache_built_engines", "cache=True"),
        ("sparse_weights", r"use torch_tensorrt_settings=\{'sparse_weights': ...\}"),
        ("tiling_optimization_level", "use torch_tensorrt_settings="),
        ("autocast_excluded_ops", "use float32_ops"),
        ("autocast_calibration_dataloader", "use calibration"),
        ("timing_cache_path", "use cache=True"),
        ("decompose_attention", r"only torch_tensorrt.compile\(\) reads it"),
        ("ship_it", "lists the options"),
    ],
)
def test_an_unknown_option_is_answered_by_the_known_one(name, message):
    with pytest.raises(OptionError, match=f"'{name}' is no option of the partitioner: .*{message}"):
        TensorRTPartitioner(builder="reference", **{name: None})
