"""Small random models of speech, and what ``transformers`` says greedily."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tf

VOCABULARY = 128
START = 1
TOKENS = 40
POSITIONS = 20  # Of the encoder's output, from twice as many frames.


def whisper() -> Any:
    torch.manual_seed(0)
    sizes = {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_mel_bins": 8, "d_model": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    layers = {"encoder_layers": 1, "decoder_layers": 2}
    ends = {"decoder_start_token_id": START, "pad_token_id": 0, "eos_token_id": 127}
    lengths = {"max_source_positions": POSITIONS, "max_target_positions": TOKENS + 4}
    config = tf.WhisperConfig(
        vocab_size=VOCABULARY, bos_token_id=0, **sizes, **heads, **layers, **ends, **lengths
    )
    model = tf.WhisperForConditionalGeneration(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


def sound(seed: int) -> torch.Tensor:
    return torch.randn(1, 8, 2 * POSITIONS, generator=torch.Generator().manual_seed(seed))


def greedy(model: Any, features: torch.Tensor) -> list[int]:
    """What ``transformers`` says greedily, with a cache."""
    cache, ids = None, [START]
    with torch.no_grad():
        hidden = model.model.encoder(features)
        for _ in range(TOKENS):
            result = model(
                encoder_outputs=hidden,
                decoder_input_ids=torch.tensor([ids[-1:]]),
                past_key_values=cache,
                use_cache=True,
            )
            cache = result.past_key_values
            ids.append(int(result.logits[0, -1].argmax()))
    return ids


BLANK = 32
BINS = 16
FRAMES = 200


def transducer(name: str) -> Any:
    """A Parakeet: "TDT" or "RNNT"."""
    torch.manual_seed(2)
    encoder = tf.ParakeetEncoderConfig(
        **{"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4},
        **{"intermediate_size": 64, "conv_kernel_size": 5, "subsampling_conv_channels": 8},
        **{"num_mel_bins": BINS, "max_position_embeddings": 200},
    )
    config = getattr(tf, f"Parakeet{name}Config")(
        **{"vocab_size": BLANK + 1, "blank_token_id": BLANK, "decoder_hidden_size": 24},
        **{"num_decoder_layers": 2, "encoder_config": encoder},
    )
    model = getattr(tf, f"ParakeetFor{name}")(config).eval()
    model.generation_config.decoder_start_token_id = BLANK
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    # Otherwise it may say one token without end.
    with torch.no_grad():
        model.joint.head.bias[BLANK] += 2.0 if name == "TDT" else 4.0
        if name == "TDT":
            model.joint.head.bias[BLANK + 1] -= 4.0
    return model


def spoken(frames: int) -> torch.Tensor:
    """Features of a recording, [1, bins, frames]."""
    return torch.randn(1, BINS, frames, generator=torch.Generator().manual_seed(frames))


def transducer_tokens(model: Any, features: torch.Tensor, length: int) -> list[int]:
    mask = torch.arange(features.shape[2])[None] < length
    found = model.generate(features.transpose(1, 2), attention_mask=mask.long()).sequences[0]
    return [token for token in found.tolist() if token != BLANK]


def run_transducer(program: Any, features: torch.Tensor, length: int) -> list[int]:
    """What ExecuTorch's ``TransducerRunner`` says with a loaded program, call by call."""
    methods = {name: program.load_method(name) for name in ("encoder", "decoder_step", "joint")}

    def constant(name: str) -> Any:
        return program.load_method(name).execute([])

    (layers,), (width,), (blank,) = map(constant, ("num_rnn_layers", "pred_hidden", "blank_id"))
    durations = constant("durations")
    rows, steps = methods["encoder"].execute([features, torch.tensor([length])])
    rows, steps = rows.clone(), int(steps)
    state = [torch.zeros(layers, 1, width)] * 2
    tokens: list[int] = []
    last, at, on_frame = blank, 0, 0
    while True:
        predicted, *state = methods["decoder_step"].execute([torch.tensor([[last]]), *state])
        predicted, state = predicted.clone(), [part.clone() for part in state]
        last = blank
        while at < steps and last == blank:
            token, index = methods["joint"].execute([rows[:, at : at + 1].contiguous(), predicted])
            last, duration = int(token), durations[int(index)]
            if last == blank:
                at, on_frame = at + max(duration, 1), 0
                continue
            tokens.append(last)
            at, on_frame = at + duration, 0 if duration else on_frame + 1
            if on_frame >= 10:
                at, on_frame = at + 1, 0
        if at >= steps:
            return tokens
