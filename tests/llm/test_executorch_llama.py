"""ExecuTorch's own language models (``examples/models/llama``) are one engine."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from torch import Tensor, nn
from torch.export import Dim

from tests.support.simulated_gpus import load_runtime
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.inspection import inspect_program
from trt_et.runtime.counters import read_counters

pytest.importorskip("executorch.examples.models.llama.llama_transformer")

VOCABULARY = 64
NEW_TOKENS = 16
KINDS: dict[str, dict[str, Any]] = {
    "llama, one token a call": {"n_layers": 2, "enable_dynamic_shape": False},
    "qwen 3, all logits": {
        **{"use_qk_norm": True, "qk_norm_before_rope": True, "use_hf_rope": True},
        **{"attention_qkv_bias": True, "generate_full_logits": True},
    },
    "phi 4 mini, experts": {
        **{"use_hf_rope": True, "partial_rotary_factor": 0.5},
        **{"moe": True, "num_experts": 4, "num_activated_experts": 2},
    },
}


def make(**options: Any) -> nn.Module:
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    sizes = {"dim": 32, "hidden_dim": 48, "n_heads": 4, "n_kv_heads": 2, "vocab_size": VOCABULARY}
    caches = {"max_seq_len": 32, "max_context_len": 64, "use_kv_cache": True}
    options = {"n_layers": 1, "enable_dynamic_shape": True, **sizes, **caches, **options}
    torch.manual_seed(0)
    model = construct_transformer(ModelArgs(**options))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)
    return model.eval()


def lower(model: nn.Module, builder: str) -> bytes:
    """Lower a model as ExecuTorch's ``export_llm`` exports it."""
    dynamic = model.params.enable_dynamic_shape
    tokens = torch.tensor([[2, 3, 4]] if dynamic else [[1]])
    shapes = ({1: Dim("token_dim", max=model.params.max_seq_len - 1)}, {"input_pos": {0: 1}})
    with torch.no_grad():
        program = torch.export.export(
            *(model, (tokens, {"input_pos": torch.tensor([0])})),
            dynamic_shapes=shapes if dynamic else None,
            strict=True,
        )
    partitioner = TensorRTPartitioner(builder=builder, full_graph=True)
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner])
    config = ExecutorchBackendConfig(memory_planning_pass=TensorRTMemoryPlanningPass())
    return bytes(manager.to_executorch(config).buffer)


def answer(forward: Any, prompt: list[int], count: int) -> list[int]:
    """Read a prompt in pieces of ``count`` tokens, and return the most likely tokens after it."""
    pieces = [prompt[i : i + count] for i in range(0, len(prompt), count)]
    position, found = 0, []
    while len(found) < NEW_TOKENS:
        piece = pieces.pop(0) if pieces else found[-1:]
        logits: Tensor = forward(torch.tensor([piece]), torch.tensor([position]))
        position += len(piece)
        if not pieces:
            found.append(int(logits.reshape(-1, VOCABULARY)[-1].argmax()))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_one_engine_that_says_what_eager_says(kind):
    from executorch.runtime import Runtime

    load_runtime()
    pte = lower(make(**KINDS[kind]), "reference")
    assert len(inspect_program(pte)[0].delegates) == 1
    method = Runtime.get().load_program(pte).load_method("forward")
    eager = make(**KINDS[kind])

    def run(tokens: Tensor, position: Tensor) -> Tensor:
        logits: Tensor = method.execute([tokens, position])[0]
        return logits

    def run_eager(tokens: Tensor, position: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = eager(tokens, {"input_pos": position})
        return logits

    torch.manual_seed(1)
    for length in (1, 7, 33):
        prompt = torch.randint(0, VOCABULARY, (length,)).tolist()
        count = 31 if eager.params.enable_dynamic_shape else 1
        assert answer(run, prompt, count) == answer(run_eager, prompt, count), length
    before = read_counters()
    run(torch.tensor([[3]]), torch.tensor([5]))
    copied = {name: count - before.get(name, 0) for name, count in read_counters().items()}
    assert (copied["bytes_h2d"], copied["bytes_d2h"]) == (8 + 8, 4 * VOCABULARY)


def test_tensorrt_rtx_writes_each_cache_in_place():
    pte = lower(make(n_layers=2), "tensorrt_rtx")
    (delegate,) = inspect_program(pte)[0].delegates
    assert delegate.engine is not None
    assert len(delegate.engine.aliases) == 4
