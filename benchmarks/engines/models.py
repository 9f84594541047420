"""The models whose engines are compared: random weights, small, each with its usual inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.nn import functional


@dataclass(frozen=True)
class Model:
    """A network in float32, and how it is exported.

    Attributes:
        module: In eval mode.
        inputs: Example inputs, in float32 or integers.
        dynamic_shapes: As ``torch.export.export`` takes it.
        strict: Likewise.
    """

    module: nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any = None
    strict: bool = False

    def __post_init__(self) -> None:
        """Fill biases of zeros, as untrained models have them: exporters drop those."""
        with torch.no_grad():
            for parameter in self.module.parameters():
                if not parameter.any():
                    parameter.normal_(std=0.02)

    def half(self) -> Model:
        """The same in float16; changes the module."""
        inputs = tuple(x.half() if x.is_floating_point() else x for x in self.inputs)
        return Model(self.module.half(), inputs, self.dynamic_shapes)


_VOCABULARY = 8192


class Returns(nn.Module):
    """Calls a model of ``transformers`` with named inputs, and returns some of its outputs."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, inputs, outputs

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.model(**dict(zip(self.inputs, values, strict=True)))
        return tuple(getattr(found, name) for name in self.outputs)


def _image(size: int = 224, batch: int = 1) -> torch.Tensor:
    return torch.randn(batch, 3, size, size)


def mobilenet_v3() -> Model:
    from torchvision.models import mobilenet_v3_small

    return Model(mobilenet_v3_small(), (_image(),))


def resnet18() -> Model:
    from torchvision.models import resnet18 as make

    return Model(make(), (_image(),))


def convnext_atto() -> Model:
    import timm

    return Model(timm.create_model("convnext_atto", num_classes=100), (_image(),))


class _Residual(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, before), nn.Conv2d(before, after, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1(functional.silu(self.norm1(x)))
        result: torch.Tensor = self.skip(x) + self.conv2(functional.silu(self.norm2(y)))
        return result


class _UNet(nn.Module):
    """Residual blocks of a diffusion model: group norms and SiLU, skips from the way down."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 96)) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, widths[0], 3, padding=1)
        self.down = nn.ModuleList(
            _Residual(a, b) for a, b in zip(widths[:1] + widths, widths, strict=False)
        )
        self.middle = _Residual(widths[-1], widths[-1])
        self.up = nn.ModuleList(
            _Residual(b + c, b) for b, c in zip(widths[-2::-1], widths[:0:-1], strict=True)
        )
        self.norm, self.head = nn.GroupNorm(8, widths[0]), nn.Conv2d(widths[0], 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        skips = []
        for block in self.down:
            x = block(x)
            skips.append(x)
            x = functional.avg_pool2d(x, 2)
        x = functional.interpolate(self.middle(x), scale_factor=2.0)
        skips.pop()
        for block in self.up:
            x = functional.interpolate(x, scale_factor=2.0)
            x = block(torch.cat([x, skips.pop()], 1))
        result: torch.Tensor = self.head(functional.silu(self.norm(x)))
        return result


def unet() -> Model:
    return Model(_UNet(), (torch.randn(1, 4, 32, 32),))


def _vit_module() -> nn.Module:
    import timm

    return timm.create_model("vit_tiny_patch16_224", depth=4)


def vit_tiny() -> Model:
    return Model(_vit_module(), (_image(),))


def vit_dynamic_batch() -> Model:
    return Model(_vit_module(), (_image(batch=2),), ({0: Dim("batch", min=1, max=8)},))


def swin() -> Model:
    from timm.models.swin_transformer import SwinTransformer

    module = SwinTransformer(embed_dim=64, depths=(2, 2, 2), num_heads=(2, 4, 8))
    return Model(module, (_image(),))


def _bert(inputs: tuple[torch.Tensor, ...], dynamic_shapes: Any = None) -> Model:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=_VOCABULARY,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=1024,
        attn_implementation="sdpa",
    )
    names = ("input_ids", "attention_mask")[: len(inputs)]
    module = Returns(BertModel(config), names, ("last_hidden_state", "pooler_output"))
    return Model(module, inputs, dynamic_shapes)


def _tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, _VOCABULARY, (batch, length))


def bert_mini() -> Model:
    return _bert((_tokens(1, 128),))


def bert_masked() -> Model:
    mask = torch.ones(1, 128, dtype=torch.int64)
    mask[:, -16:] = 0
    return _bert((_tokens(1, 128), mask))


def bert_dynamic() -> Model:
    sizes = {0: Dim("batch", min=1, max=8), 1: Dim("length", min=2, max=256)}
    return _bert((_tokens(2, 64),), ((sizes,),))


def llama() -> Model:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=_VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        attn_implementation="sdpa",
        use_cache=False,
    )
    module = Returns(LlamaForCausalLM(config), ("input_ids",), ("logits",))
    return Model(module, (_tokens(1, 64),))


def whisper_encoder() -> Model:
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        d_model=384,
        encoder_layers=2,
        encoder_attention_heads=6,
        encoder_ffn_dim=1536,
        decoder_layers=1,
        decoder_attention_heads=6,
        decoder_ffn_dim=384,
        vocab_size=64,
        pad_token_id=0,
        attn_implementation="sdpa",
    )
    encoder = WhisperModel(config).encoder
    module = Returns(encoder, ("input_features",), ("last_hidden_state",))
    return Model(module, (torch.randn(1, 80, 3000),))


def detr() -> Model:
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=32,
        hidden_sizes=[32, 64, 128, 256],
        depths=[1, 1, 1, 1],
        layer_type="basic",
        out_features=["stage4"],
    )
    config = DetrConfig(
        backbone_config=backbone,
        d_model=128,
        num_queries=50,
        num_labels=20,
        encoder_layers=2,
        decoder_layers=2,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
    )
    module = Returns(DetrForObjectDetection(config), ("pixel_values",), ("logits", "pred_boxes"))
    return Model(module, (_image(),))


class _Recurrent(nn.Module):
    """An LSTM, then a GRU, as speech models have them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.gru = nn.GRU(128, 128, batch_first=True)
        self.head = nn.Linear(128, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.gru(self.lstm(x)[0])[0])
        return result


def lstm_gru() -> Model:
    return Model(_Recurrent(), (torch.randn(1, 16, 64),))


MODELS: dict[str, Callable[[], Model]] = {
    make.__name__: make
    for make in (
        mobilenet_v3,
        unet,
        vit_tiny,
        vit_dynamic_batch,
        bert_mini,
        bert_masked,
        bert_dynamic,
        llama,
        whisper_encoder,
        detr,
        swin,
        resnet18,
        convnext_atto,
        lstm_gru,
    )
}


def make_model(name: str) -> Model:
    """The model of that name, in eval mode, the same every time."""
    torch.manual_seed(0)
    model = MODELS[name]()
    model.module.eval().requires_grad_(False)
    for module in model.module.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.get_buffer("running_mean").uniform_(-0.1, 0.1)
            module.get_buffer("running_var").uniform_(0.9, 1.1)
    return model
