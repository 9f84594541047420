"""Small models with random weights, of every architecture that a small configuration makes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from transformers import CONFIG_MAPPING, MODEL_MAPPING, AutoConfig, PretrainedConfig

_HIDDEN = dict.fromkeys(
    (
        *("hidden_size", "d_model", "dim", "n_embd", "emb_dim", "embedding_size", "embed_dim"),
        *("word_embed_proj_dim", "projection_dim", "d_embed", "encoder_hidden_size"),
        *("classifier_proj_size", "conv_dim_out"),
    ),
    32,
)
_INNER = dict.fromkeys(
    (
        *("intermediate_size", "d_ff", "n_inner", "ffn_dim", "encoder_ffn_dim", "hidden_dim"),
        *("decoder_ffn_dim", "d_inner", "moe_intermediate_size", "shared_expert_intermediate_size"),
    ),
    64,
)
_LAYERS = dict.fromkeys(
    (
        *("num_hidden_layers", "n_layer", "num_layers", "n_layers", "encoder_layers"),
        *("decoder_layers", "num_decoder_layers", "num_encoder_layers"),
    ),
    2,
)
_HEADS = dict.fromkeys(
    (
        *("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"),
        *("decoder_attention_heads", "num_key_value_heads"),
    ),
    4,
)
SMALL: dict[str, Any] = {
    **_HIDDEN,
    **_INNER,
    **_LAYERS,
    **_HEADS,
    "head_dim": 8,
    "d_kv": 8,
    "image_size": 32,
    "patch_size": 8,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "max_source_positions": 50,
    "num_mel_bins": 16,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "vocab_size": 99,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
    "use_mems_eval": False,
    "mask_time_prob": 0.0,
}


def architectures() -> Iterator[tuple[str, type[PretrainedConfig]]]:
    """Yield the model type and the configuration of one base model of each of their folders."""
    seen = set()
    for model_type, config in CONFIG_MAPPING.items():
        folder = config.__module__.split(".")[2]
        if folder not in seen and config in MODEL_MAPPING:
            seen.add(folder)
            yield model_type, config


def make(config_type: type[PretrainedConfig]) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return a model in ``eval`` mode and inputs for it; raises what its code raises."""
    torch.manual_seed(0)
    config = small(config_type)
    kind = MODEL_MAPPING[config_type]
    model = (kind[0] if isinstance(kind, tuple) else kind)(config).eval()
    inputs = _inputs(model, config)
    _randomize(model)
    with torch.no_grad():
        model(**inputs)
    return model, inputs


def small(config_type: type[PretrainedConfig]) -> PretrainedConfig:
    """Make a configuration with the small sizes that its type knows."""
    known = inspect.signature(config_type.__init__).parameters
    parts = {
        name: small(part)
        for name, part in config_type.sub_configs.items()
        if part is not AutoConfig
    }
    sizes = {
        name: value
        for name, value in SMALL.items()
        # A list has a size for each stage.
        if name in known and not isinstance(known[name].default, list | tuple)
    }
    return config_type(**sizes, **parts)


def _randomize(model: torch.nn.Module) -> None:
    """Give parameters that start as zeros or ones values that an error would show in."""
    for parameter in model.parameters():
        if parameter.is_floating_point() and parameter.unique().numel() == 1:
            parameter.data += 0.1 * torch.randn_like(parameter)


def _inputs(model: Any, config: PretrainedConfig) -> dict[str, torch.Tensor]:
    tokens = torch.randint(3, 99, (2, 7))
    name = model.main_input_name
    if name == "input_ids":
        inputs = {name: tokens, "attention_mask": torch.ones_like(tokens)}
    elif name == "pixel_values":
        size = getattr(config, "image_size", 64)
        height, width = (size, size) if isinstance(size, int) else size
        inputs = {name: torch.randn(2, getattr(config, "num_channels", 3), height, width)}
    elif name == "input_features":
        time = 2 * getattr(config, "max_source_positions", 50)
        inputs = {name: torch.randn(2, getattr(config, "num_mel_bins", 16), time)}
    elif name == "input_values":
        inputs = {name: torch.randn(2, 1600)}
    else:
        raise ValueError(f"this table makes no inputs named {name}")
    vision = getattr(config, "vision_config", None)
    if name == "input_ids" and vision is not None:
        inputs["pixel_values"] = torch.randn(2, 3, vision.image_size, vision.image_size)
    taken = inspect.signature(model.forward).parameters
    if config.is_encoder_decoder and "decoder_input_ids" in taken:
        inputs["decoder_input_ids"] = tokens[:, :3].clone()
    return {name: value for name, value in inputs.items() if name in taken}
