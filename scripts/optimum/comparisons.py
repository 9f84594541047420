"""What optimum's programs say on reference engines, next to eager."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from executorch.runtime import Runtime

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NEW_TOKENS = 24
TOLERANCE = 2e-4


class Program:
    """A program on simulated GPUs."""

    def __init__(self, path: Path) -> None:
        self._program = Runtime.get().load_program(path)
        self._methods: dict[str, Any] = {}

    def run(self, method: str, *inputs: torch.Tensor) -> torch.Tensor:
        """Return a method's output; its caches stay."""
        if method not in self._methods:
            self._methods[method] = self._program.load_method(method)
        result: torch.Tensor = self._methods[method].execute(list(inputs))[0].clone()
        return result


def compare_text(
    model: Any,
    program: Program,
    *,
    at_once: bool = True,
    steps: int = NEW_TOKENS,
    atol: float = TOLERANCE,
) -> None:
    """A prompt, in one call or one token in each, and greedy steps."""
    _compare_decoder(model, partial(program.run, "forward"), at_once, steps, atol)


def _compare_decoder(
    eager: Any, step: Any, at_once: bool = True, steps: int = NEW_TOKENS, atol: float = TOLERANCE
) -> None:
    tokens = list(PROMPT)
    positions = torch.arange(len(tokens))
    calls = [positions] if at_once else positions.split(1)
    for call in calls:
        logits = step(torch.tensor([[tokens[int(at)] for at in call]]), call)
    for _ in range(steps):
        expected = eager(torch.tensor([tokens])).logits[:, -1:]
        _check_close(logits[:, -1:], expected, atol)
        tokens.append(int(expected.argmax()))
        logits = step(torch.tensor([tokens[-1:]]), torch.tensor([len(tokens) - 1]))


def compare_filled_masks(model: Any, program: Program) -> None:
    """Texts of several lengths, up to the longest."""
    table = getattr(getattr(model, "roberta", None), "embeddings", None)
    longest = 64 if table is None else 64 - table.padding_idx - 1
    for length in (1, 7, longest):
        tokens = torch.randint(3, 60, (1, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(tokens)
        _check_close(program.run("forward", tokens, mask), model(tokens, mask).logits)


def compare_classes(model: Any, program: Program) -> None:
    """An image."""
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    _check_close(program.run("forward", image), model(image).logits)


def compare_speech(model: Any, program: Program) -> None:
    """The encoder, greedy steps, and the sampler."""
    shape = (1, model.config.num_mel_bins, 2 * model.config.max_source_positions)
    sound = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    hidden = program.run("encoder", sound)
    expected_hidden = model.get_encoder()(sound)
    _check_close(hidden, expected_hidden.last_hidden_state)
    tokens = [model.config.decoder_start_token_id]
    for position in range(NEW_TOKENS):
        logits = program.run(
            "text_decoder", torch.tensor([tokens[-1:]]), hidden, torch.tensor([position])
        )
        expected = model(
            encoder_outputs=expected_hidden, decoder_input_ids=torch.tensor([tokens])
        ).logits[:, -1:]
        _check_close(logits, expected)
        tokens.append(int(expected.argmax()))
        if int(program.run("sampler", logits)) != tokens[-1]:
            raise AssertionError("the sampler takes another token than argmax")


def compare_multimodal(model: Any, program: Program) -> None:
    """The encoder, and greedy steps from the embeddings of tokens."""
    generator = torch.Generator().manual_seed(1)
    if hasattr(model.config, "vision_config"):
        image = torch.randn(1, 3, 16, 16, generator=generator)
        _check_close(program.run("vision_encoder", image), model.get_image_features(image))
    else:
        sound = torch.randn(2, 8, 32, generator=generator)
        expected = model.get_audio_features(sound)
        _check_close(program.run("audio_encoder", sound), expected.unsqueeze(0))

    def step(tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return program.run("text_decoder", program.run("token_embedding", tokens), positions)

    _compare_decoder(lambda tokens: model(input_ids=tokens), step)


def _check_close(found: torch.Tensor, expected: Any, atol: float = TOLERANCE) -> None:
    torch.testing.assert_close(found, torch.as_tensor(expected), atol=atol, rtol=1e-3)
