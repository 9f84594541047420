"""ExecuTorch's own language models (``examples/models/llama``), small and random."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from tests.support.lowering import finish
from tests.support.programs.language_models import NO_END, VOCABULARY
from trt_et import TensorRTMemoryPlanningPass, TensorRTPartitioner
from trt_et.llm.metadata import runner_metadata

NEW_TOKENS = 64
MAX_PROMPT = 31  # Longer prompts are read in pieces.
CONTEXT = 192
HF: dict[str, Any] = {"use_hf_rope": True}
QWEN3 = {**HF, "use_qk_norm": True, "qk_norm_before_rope": True, "head_dim": 16}
LONG = {"original_max_position_embeddings": 64, "max_position_embeddings": 256}
LONG |= {"rope_scaling_short_factor": [1.0] * 3, "rope_scaling_long_factor": [1.0, 2.0, 4.0]}
# As in ExecuTorch's folders of these models.
KINDS: dict[str, dict[str, Any]] = {
    "llama 2": {"n_layers": 2, "n_kv_heads": None},
    "llama 2, one token a call": {"n_layers": 2, "enable_dynamic_shape": False},
    "llama 3.2": {"rope_freq_base": 500000.0, "use_scaled_rope": True, "rope_scale_factor": 32},
    "qwen 2.5": {**HF, "rope_theta": 1e6, "attention_qkv_bias": True},
    "qwen 3": {**QWEN3, "rope_theta": 1e6},
    "qwen 3, all logits": {**QWEN3, "generate_full_logits": True},
    "gemma": {**HF, "act_fn": "gelu_approx", "embedding_scale_factor": 5.6, "head_dim": 16},
    "gemma 3": {
        **{**HF, **QWEN3, "act_fn": "gelu_approx", "embedding_scale_factor": 5.6},
        **{"rms_norm_add_unit_offset": True, "post_attention_norm": True, "post_ffn_norm": True},
        **{"local_rope_theta": 10000.0, "rope_theta": 1e6, "n_layers": 2, "windows": [16, 0]},
    },
    "phi 4 mini": {**HF, "partial_rotary_factor": 0.75},
    "phi 4 mini, long": {**HF, **LONG, "partial_rotary_factor": 0.75},
    "smollm 2": {"n_layers": 2, "rope_theta": 100000.0},
    "smollm 3": {**HF, "n_layers": 2, "no_rope_layer_interval": 2},
    "glm": {**HF, "partial_rotary_factor": 0.5, "attention_qkv_bias": True},
    "granite": {
        **{**HF, "attention_multiplier": 0.1, "embedding_scale_factor": 12.0},
        **{"residual_multiplier": 0.22, "logits_scaling": 4.0},
    },
    "experts": {"moe": True, "num_experts": 4, "num_activated_experts": 2},
    "ring buffers": {"windows": [16, 0], "n_layers": 2},
    "ring buffers, one token a call": {"windows": [16], "enable_dynamic_shape": False},
}


def make(windows: list[int] | None = None, **options: Any) -> nn.Module:
    """A model with random weights; ``windows`` are those of its layers, 0 for full attention."""
    from executorch.examples.models.llama.llama_transformer import construct_transformer
    from executorch.examples.models.llama.model_args import ModelArgs

    sizes = {"dim": 32, "hidden_dim": 48, "n_heads": 4, "n_kv_heads": 2, "vocab_size": VOCABULARY}
    caches = {"max_seq_len": MAX_PROMPT + 1, "max_context_len": CONTEXT, "use_kv_cache": True}
    options = {"n_layers": 1, "enable_dynamic_shape": True, **sizes, **caches, **options}
    torch.manual_seed(0)
    model = construct_transformer(ModelArgs(**options))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)
    if windows is not None:
        from executorch.examples.models.llama.source_transformation import custom_kv_cache

        model = custom_kv_cache.replace_kv_cache_with_ring_kv_cache(model, windows)
    return model.eval()


def lower(model: nn.Module, builder: str) -> bytes:
    """Lower a model as ExecuTorch's ``export_llm`` exports it."""
    dynamic = model.params.enable_dynamic_shape
    tokens = torch.tensor([[2, 3, 4]] if dynamic else [[1]])
    shapes = ({1: Dim("token_dim", max=MAX_PROMPT)}, {"input_pos": {0: 1}})
    with torch.no_grad():
        program = torch.export.export(
            *(model, (tokens, {"input_pos": torch.tensor([0])})),
            dynamic_shapes=shapes if dynamic else None,
            strict=True,
        )
    partitioner = TensorRTPartitioner(builder=builder, full_graph=True)
    metadata = runner_metadata(CONTEXT, MAX_PROMPT if dynamic else 1, [NO_END], VOCABULARY)
    planning = TensorRTMemoryPlanningPass()
    done = finish(program, partitioner, planning=planning, constant_methods=metadata)
    return bytes(done.buffer)


def eager_answer(model: nn.Module, prompt: list[int]) -> list[int]:
    """Read a prompt in pieces, and return the most likely tokens after it."""
    count = MAX_PROMPT if model.params.enable_dynamic_shape else 1
    pieces = [prompt[i : i + count] for i in range(0, len(prompt), count)]
    position, found = 0, []
    while len(found) < NEW_TOKENS:
        piece = pieces.pop(0) if pieces else found[-1:]
        with torch.no_grad():
            logits: Tensor = model(torch.tensor([piece]), {"input_pos": torch.tensor([position])})
        position += len(piece)
        if not pieces:
            found.append(int(logits.reshape(-1, VOCABULARY)[-1].argmax()))
    return found
