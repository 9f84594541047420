"""The cache of a ``transformers`` model, made in advance, as ``torch.export`` needs it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import torch

from trt_et.errors import UnsupportedModelError
from trt_et.llm.cache_layers import make_cache_layer, make_recurrent_layer
from trt_et.llm.scans import Scan, replaced, scans
from trt_et.llm.sliding_windows import WindowPositions, window_rows


def make_static_cache(
    model: Any,  # noqa: ANN401
    cache_length: int,
    max_prompt: int,
    first: str,
) -> tuple[Any, WindowPositions | None]:
    """Make a ``StaticCache`` whose layers have the shapes that a call of the model shows.

    The ring buffer that ``transformers`` has for layers with a sliding window branches on data.
    Such a layer gets our ring buffer if that is shorter than the whole cache; otherwise the mask
    hides the tokens outside of the window.

    Args:
        model: A causal language model.
        cache_length: Positions of the cache.
        max_prompt: Most tokens of one call.
        first: The model's input for tokens: ``input_ids`` or ``inputs_embeds``.

    Returns:
        The cache, and the positions of the rows for layers with a sliding window, if any has one.

    Raises:
        UnsupportedModelError: The model keeps no cache, or another kind of cache.
    """
    try:
        from transformers.cache_utils import (
            DummyLayer,
            LinearAttentionCacheLayerMixin,
            StaticCache,
            StaticSlidingWindowLayer,
        )
    except ImportError as error:
        raise UnsupportedModelError(
            f"the installed transformers has no static cache that can be exported ({error}); run: "
            'pip install "trt-et[llm]"'
        ) from error
    tried = _try_out(model, first)
    config = model.config.get_text_config()
    cache = StaticCache(config=config, max_cache_len=cache_length)
    window = _window(config)
    rows = cache_length if window is None else window_rows(window, max_prompt)
    for index, layer in enumerate(cache.layers):
        if isinstance(layer, DummyLayer):
            continue  # It reads another layer's keys and values, or none.
        sliding = isinstance(layer, StaticSlidingWindowLayer) and rows < cache_length
        length = rows if sliding else cache_length
        shown = tried.layers[index]
        if isinstance(shown, LinearAttentionCacheLayerMixin):
            attends = getattr(shown, "keys", None) is not None
            cache.layers[index] = make_recurrent_layer(shown, cache_length if attends else None)
        else:
            attends = True
            cache.layers[index] = make_cache_layer(length, sliding=sliding)
        if attends:
            keys, values = (x[:, :, :0].to(model.device) for x in (shown.keys, shown.values))
            cache.layers[index].lazy_initialization(keys, values)
    if window is None or rows >= cache_length or True not in cache.is_sliding:
        return cache, None
    return cache, WindowPositions(window, max_prompt).to(model.device)


def cache_input(model: Any) -> str:  # noqa: ANN401
    """Return the name of the model's input for its cache.

    Raises:
        UnsupportedModelError: It has none.
    """
    takes = inspect.signature(model.forward).parameters
    for name in ("cache", "past_key_values", "cache_params"):  # "cache" since transformers 5.24.
        if name in takes:
            return name
    raise UnsupportedModelError(
        f"{type(model).__name__}.forward takes no cache, past_key_values or cache_params; expected "
        "a causal language model, as AutoModelForCausalLM of transformers 5.23 and 5.24 loads it "
        f"(here: {metadata.version('transformers')})"
    )


def states_of(layer: Any) -> Iterator[tuple[str, torch.Tensor]]:  # noqa: ANN401
    """Iterate over the tensors of a layer of the cache, with names for them."""
    if getattr(layer, "keys", None) is not None:
        yield "key_cache", layer.keys
        yield "value_cache", layer.values
    for name in ("conv_states", "recurrent_states"):
        for index, state in getattr(layer, name, {}).items():
            if state is not None:
                yield f"{name}_{index}", state


def _try_out(model: Any, first: str) -> Any:  # noqa: ANN401
    """Call the model with two tokens, and return its ``DynamicCache``."""
    from transformers import DynamicCache

    name, place = type(model).__name__, cache_input(model)
    cache = DynamicCache(config=model.config.get_text_config())
    tokens: torch.Tensor = torch.zeros(1, 2, dtype=torch.long, device=model.device)
    if first == "inputs_embeds":
        tokens = model.get_input_embeddings()(tokens)
    scanned: list[int] = []
    counting = {name: _counting(scan, scanned) for name, scan in scans(2).items()}
    try:
        with replaced(model, counting):
            result = model(**{first: tokens, place: cache, "use_cache": True})
    except Exception as error:
        raise UnsupportedModelError(
            f"{name} does not run with a DynamicCache of transformers: {_first_line(error)}"
        ) from error
    if not hasattr(result, "logits"):
        raise UnsupportedModelError(
            f"{name} returns no logits; expected a causal language model, as AutoModelForCausalLM "
            "loads it"
        )
    _check_layers(cache, name, len(scanned))
    return cache


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _counting(scan: Scan, calls: list[int]) -> Scan:
    def count(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        calls.append(1)
        return scan(*args, **kwargs)

    return count


def _check_layers(cache: Any, name: str, scanned: int) -> None:  # noqa: ANN401
    """Check that a program can have each layer: keys and values, or states of known scans."""
    from transformers.cache_utils import (
        DummyLayer,
        DynamicLayer,
        DynamicSlidingWindowLayer,
        LinearAttentionAndFullAttentionLayer,
        LinearAttentionLayer,
    )

    known = {DynamicLayer, DynamicSlidingWindowLayer, DummyLayer, LinearAttentionLayer}
    known.add(LinearAttentionAndFullAttentionLayer)
    recurrent = 0
    for index, layer in enumerate(cache.layers):
        if type(layer) not in known:
            raise UnsupportedModelError(
                f"layer {index} of {name} keeps a {type(layer).__name__}; expected keys and values "
                "of attention, a short convolution, or the state of Mamba 2 or a gated delta rule"
            )
        states = dict(states_of(layer))
        if not states and not isinstance(layer, DummyLayer):
            raise UnsupportedModelError(
                f"layer {index} of {name} keeps nothing in the cache: the model is no decoder, or "
                "keeps its states elsewhere"
            )
        recurrent += sum(state.startswith("recurrent") for state in states)
    if recurrent != scanned:
        raise UnsupportedModelError(
            f"{name} keeps recurrent states that are neither Mamba 2's nor a gated delta rule's; "
            "the program of another recurrence would be a loop over the tokens, which an engine "
            "does not have here"
        )


def _window(config: Any) -> int | None:  # noqa: ANN401
    """Return the window of a model's layers, if they have one that slides token by token."""
    if "chunked_attention" in (getattr(config, "layer_types", None) or ()):
        return None
    return getattr(config, "sliding_window", None)
