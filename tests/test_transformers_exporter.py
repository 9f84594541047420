"""``backend="tensorrt"`` of transformers' ExecuTorch exporter, against eager."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from transformers.exporters import ExecutorchConfig, ExecutorchExporter, exporter_executorch
from transformers.exporters.utils import decompose_for_generation

import trt_et.transformers
from tests.support.simulated_gpus import load_runtime
from trt_et.errors import OptionError
from trt_et.inspection import inspect_program

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 64}


@pytest.fixture(autouse=True)
def backends(monkeypatch) -> dict[str, Any]:
    """The exporter's table, as it was again after each test."""
    load_runtime()
    table = dict(exporter_executorch._BACKEND_PREPARE)
    monkeypatch.setattr(exporter_executorch, "_BACKEND_PREPARE", table)
    return table


def bert() -> tuple[torch.nn.Module, Callable[..., dict[str, torch.Tensor]]]:
    model = tf.BertModel(tf.BertConfig(vocab_size=64, **SIZES)).eval()

    def inputs(batch: int, length: int) -> dict[str, torch.Tensor]:
        mask = torch.ones(batch, length, dtype=torch.long)
        mask[0, -2:] = 0
        return {"input_ids": torch.randint(1, 64, (batch, length)), "attention_mask": mask}

    return model, inputs


def export(model: torch.nn.Module, inputs: dict[str, Any], **options: Any) -> Any:
    config = ExecutorchConfig(backend="tensorrt", **options)
    return ExecutorchExporter().export(model, inputs, config=config)


def engines_of(exported: Any, *, besides: str = "") -> int:
    """The engines of a program in which no other operator computes."""
    (method,) = inspect_program(bytes(exported.program.buffer))
    assert not set(method.operator_calls) - {besides}
    return len(method.delegates)


def check(exported: Any, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        expected = model(**inputs)
    found = exported(**inputs)
    assert list(found) == list(expected)
    for name, want in expected.items():
        torch.testing.assert_close(found[name], want, atol=1e-5, rtol=1e-5)


@pytest.mark.long
def test_bert_of_dynamic_sizes_is_one_engine_for_all_of_them():
    trt_et.transformers.register(builder="reference")
    model, inputs = bert()
    exported = export(model, inputs(2, 7), dynamic=True)
    assert engines_of(exported) == 1
    exported.to(None)
    for sizes in ((2, 7), (5, 3), (3, 40)):
        check(exported, model, inputs(*sizes))


@pytest.mark.long
def test_vit_of_dynamic_sizes_takes_any_batch():
    """The exporter caps the sizes that ExecuTorch plans memory for, such as 17 * batch, at 1024."""
    trt_et.transformers.register(builder="reference")
    model = tf.ViTModel(tf.ViTConfig(image_size=32, patch_size=8, **SIZES)).eval()
    image = {"pixel_values": torch.randn(2, 3, 32, 32)}
    exported = export(model, image, dynamic=True)
    assert engines_of(exported) == 1
    exported.to(None)
    for batch in (2, 5):
        check(exported, model, {"pixel_values": torch.randn(batch, 3, 32, 32)})


@pytest.mark.long
@pytest.mark.parametrize("stage", ["decode", "prefill"])
def test_a_stage_of_a_llama_with_a_static_cache_is_one_engine_and_says_what_eager_says(stage):
    trt_et.transformers.register(builder="reference")
    config = tf.LlamaConfig(vocab_size=64, num_key_value_heads=2, **SIZES)
    prompt = {"input_ids": torch.randint(3, 64, (1, 5)), "attention_mask": torch.ones(1, 5).long()}
    generation = tf.GenerationConfig(
        max_new_tokens=6, do_sample=False, cache_implementation="static", pad_token_id=0
    )
    stages = decompose_for_generation(
        tf.LlamaForCausalLM(config).eval(), prompt, generation_config=generation
    )
    model, inputs = stages[stage]
    exported = export(model, copy.deepcopy(inputs))
    # The writes to the cache, which is an input of the program.
    assert engines_of(exported, besides="aten::copy_") == 1
    found = exported.to(None)(**copy.deepcopy(inputs))
    with torch.no_grad():
        expected = model(**copy.deepcopy(inputs))
    torch.testing.assert_close(found["logits"], expected["logits"], atol=1e-5, rtol=1e-5)
    for have, want in zip(
        found["past_key_values"].layers, expected["past_key_values"].layers, strict=True
    ):
        assert want.keys.any()
        torch.testing.assert_close(have.keys, want.keys, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(have.values, want.values, atol=1e-5, rtol=1e-5)


@pytest.mark.long
def test_options_are_those_of_the_partitioner_and_a_second_call_replaces_them():
    model, inputs = bert()
    trt_et.transformers.register(builder="reference", excluded_ops=["aten.gelu"])
    exported = export(model, inputs(2, 7))
    (method,) = inspect_program(bytes(exported.program.buffer))
    assert method.operator_calls == {"aten::gelu.out": 2}
    trt_et.transformers.register(builder="reference")
    assert engines_of(export(model, inputs(2, 7))) == 1


@pytest.mark.long
def test_the_experts_of_a_mixture_are_in_the_engine():
    trt_et.transformers.register(builder="reference")
    config = tf.MixtralConfig(
        vocab_size=64, num_local_experts=4, num_key_value_heads=2, use_cache=False, **SIZES
    )
    model = tf.MixtralModel(config).eval()
    inputs = {"input_ids": torch.randint(3, 64, (1, 5))}
    assert engines_of(export(model, inputs)) == 1


def test_broadcast_inputs_are_made_contiguous():
    trt_et.transformers.register(builder="reference")
    model, inputs = bert()
    one = inputs(1, 7)
    exported = export(model, {name: value.expand(2, 7) for name, value in one.items()})
    assert engines_of(exported) == 1


def test_a_wrong_option_is_refused_before_an_export(backends):
    with pytest.raises(OptionError, match="min_block_size"):
        trt_et.transformers.register(min_block_size=0)
    assert "tensorrt" not in backends


def test_a_transformers_without_the_table_is_named(monkeypatch):
    monkeypatch.delattr(exporter_executorch, "_BACKEND_PREPARE")
    with pytest.raises(OptionError, match=r"transformers 5.*_BACKEND_PREPARE.*pip install"):
        trt_et.transformers.register()


@pytest.mark.long
def test_a_missing_transformers_is_named():
    code = (
        "import sys; sys.modules['transformers'] = None; import trt_et.transformers\n"
        "assert 'torch' not in sys.modules\n"
        "trt_et.transformers.register()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "OptionError" in done.stderr
    assert 'pip install "transformers' in done.stderr
