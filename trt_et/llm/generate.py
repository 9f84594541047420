"""Generates tokens with a program of ``export_llm``, in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from trt_et.errors import OptionError
from trt_et.llm.decoder import INPUTS
from trt_et.llm.sampling import SAMPLING_INPUTS

if TYPE_CHECKING:
    from executorch.runtime import Method, Program


class TokenGenerator:
    """Generates tokens with a program of ``export_llm``, one text after the other.

    ExecuTorch's ``TextLLMRunner`` runs programs that return logits from ``forward``; this class
    also runs those of ``prefill_and_decode=True`` and ``sampling=True``. It takes and yields token
    ids. A prompt of more than ``max_prompt`` tokens is read in pieces.

    Args:
        program: The program, as ``executorch.runtime`` loads it after ``trt_et.runtime.load()``.

    Raises:
        OptionError: The program is of another kind.
    """

    def __init__(self, program: Program) -> None:
        if not hasattr(program, "method_names"):
            raise OptionError(
                f"program is {type(program).__name__}; expected a program: "
                "trt_et.runtime.load_program(FILE)"
            )
        self._program = program  # Its methods read its bytes.
        names = program.method_names
        methods = ("prefill", "decode") if "prefill" in names else ("forward",)
        if missing := {*methods, "get_max_seq_len", "get_max_context_len"} - names:
            raise OptionError(
                f"the program has no method {min(missing)}; expected a program of export_llm"
            )
        loaded = [_load(program, name) for name in methods]
        self._prefill, self._decode = loaded[0], loaded[-1]
        self._most, self._cache_length = (
            _load(program, name).execute([])[0]
            for name in ("get_max_seq_len", "get_max_context_len")
        )
        ends = "get_eos_ids"
        self._ends = frozenset(_load(program, ends).execute([]) if ends in names else ())
        inputs = self._decode.metadata.num_inputs()
        self._samples = inputs == len(INPUTS) + len(SAMPLING_INPUTS)

    def generate(
        self,
        ids: Sequence[int],
        count: int,
        *,
        temperature: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> Iterator[int]:
        """Iterate over the tokens after a prompt, as they come.

        A token that ends a text is the last one. End an iteration before you begin another one:
        both use one cache.

        Args:
            ids: The prompt's tokens, at least one.
            count: The most tokens to generate.
            temperature: 0: the most likely token. Otherwise tokens are drawn by the probabilities
                of the logits divided by this number.
            generator: Draws the numbers on the CPU. None: torch's own.

        Raises:
            OptionError: There is no prompt, or prompt and answer do not fit the cache.
            RuntimeError: ExecuTorch failed to run a method.
        """
        positions = len(ids) + count - 1  # The last token is not read.
        if not len(ids) or positions > self._cache_length:
            raise OptionError(
                f"a prompt of {len(ids)} and an answer of {count} tokens need {positions} "
                f"positions, and the cache has {self._cache_length}; expected at least one token "
                "and a text that fits"
            )
        return self._tokens(list(ids), count, temperature, generator)

    def _tokens(
        self, ids: list[int], count: int, temperature: float, generator: torch.Generator | None
    ) -> Iterator[int]:
        method, position = self._prefill, 0
        for _ in range(count):
            for start in range(0, len(ids), self._most):
                piece = torch.tensor([ids[start : start + self._most]])
                inputs = [piece, torch.tensor([position])]
                if self._samples:
                    inputs += [torch.tensor([temperature]), torch.rand(1, generator=generator)]
                (result,) = method.execute(inputs)
                position += piece.shape[1]
            token = int(result) if self._samples else _sample(result, temperature, generator)
            yield token
            if token in self._ends:
                return
            method, ids = self._decode, [token]


def _load(program: Program, name: str) -> Method:
    method = program.load_method(name)
    assert method is not None  # It is one of the program's names.
    return method


def _sample(logits: torch.Tensor, temperature: float, generator: Any) -> int:  # noqa: ANN401
    row = logits[0, -1].float()
    if temperature <= 0:
        return int(row.argmax())
    return int(torch.multinomial((row / temperature).softmax(-1), 1, generator=generator))
