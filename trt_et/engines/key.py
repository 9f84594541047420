"""Makes the key of an engine: equal keys, equal engines.

A key covers the request (graph, weights' contents, shapes, options, device) and the builder's
``fingerprint``.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import torch

from trt_et.engine_program.canonical_text import (
    NotSerializable,
    SymbolNames,
    partition_text,
    value_text,
)
from trt_et.engines.base import BuildRequest, EngineBuilder
from trt_et.graph.tensor_bytes import bytes_of

_VERSION: Final = "trt-et engine key 1"
_CHUNK: Final = 4 << 20
_LARGE: Final = 64 << 20
_SAMPLE: Final = 64
_log = logging.getLogger(__name__)


def builder_fingerprint(builder: EngineBuilder) -> str:
    """Return a builder's fingerprint with its class; empty if its engines must not be cached."""
    fingerprint = builder.fingerprint()
    # A subclass that inherits a fingerprint may build something else.
    kind = type(builder)
    return f"{kind.__module__}.{kind.__qualname__}: {fingerprint}" if fingerprint else ""


def request_digest(request: BuildRequest) -> str | None:
    """Return a digest of a request without its weights' contents; None if it has no lasting text.

    No weight is read.
    """
    try:
        options = value_text(vars(request.options), SymbolNames())
        text = f"cuda:{request.device_id}\n{options}\n{partition_text(request.program)}"
        return hashlib.sha256(text.encode()).hexdigest()
    except NotSerializable as error:
        _log.debug("partition %s is not compared with others: %s", request.partition, error)
        return None


def engine_key(builder: str, identity: str, request: str, weights: Mapping[str, str]) -> str:
    """Return the key of an engine, 64 hex digits.

    Args:
        builder: The builder's name.
        identity: The builder's fingerprint.
        request: The ``request_digest``.
        weights: The digest of each constant, by name.
    """
    digest = hashlib.sha256()
    constants = (f"{name}={value}" for name, value in sorted(weights.items()))
    for part in (_VERSION, builder, identity, request, *constants):
        data = part.encode()
        # With its length, so that no two lists of parts are the same bytes.
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


class WeightDigests:
    """Computes digests of tensors' contents; reads the same memory once.

    The tensors must stay alive and unchanged for as long as this object is used.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], str] = {}

    def of(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
        """Return the SHA-256 of each tensor's dtype, shape and elements, by name."""
        new = {memory_of(t): t for t in tensors.values() if memory_of(t) not in self._known}
        large = {memory: t for memory, t in new.items() if t.nbytes > _LARGE}
        small = {memory: t for memory, t in new.items() if t.nbytes <= _LARGE}
        if sum(tensor.nbytes for tensor in new.values()) <= _CHUNK:
            self._known.update({memory: _digest(t, map) for memory, t in new.items()})
        else:
            # Hashing releases the GIL: hash small tensors in parallel, and pieces of a large one.
            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                digests = pool.map(lambda tensor: _digest(tensor, map), small.values())
                self._known.update(zip(small, digests, strict=True))
                for memory, tensor in large.items():
                    self._known[memory] = _digest(tensor, pool.map)
        return {name: self._known[memory_of(tensor)] for name, tensor in tensors.items()}

    def are_equal(self, one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
        """Check whether tensors are equal by name; the same memory is not read."""
        if _memories(one) == _memories(other):
            return True
        return self.of(one) == self.of(other)


def _memories(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[Any, ...]]:
    return {name: memory_of(tensor) for name, tensor in tensors.items()}


def sample_digest(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Hash a few elements of each tensor; a mismatch proves that the weights differ."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        first = last = tensors[name].detach()
        while first.dim() > 1 and first.numel() and not first.is_quantized:
            first, last = first[0], last[-1]
        if first.dim() < 2:
            for part in (first.reshape(-1)[:_SAMPLE], last.reshape(-1)[-_SAMPLE:]):
                dense = part.resolve_conj().resolve_neg().cpu().contiguous()
                digest.update(bytes_of(dense))
    return digest.digest()


def memory_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the address and layout of a tensor's elements; equal values mean equal elements."""
    flags = (tensor.is_conj(), tensor.is_neg())
    address = (str(tensor.device), tensor.data_ptr())
    return (*address, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), flags)


def _digest(tensor: torch.Tensor, map_: Callable[..., Iterable[bytes]]) -> str:
    head = f"{tensor.dtype} {list(tensor.shape)}"
    if tensor.is_quantized:
        head += f" {tensor.qscheme()} {_quantization(tensor)}"
    digest = hashlib.sha256(head.encode())
    # Elements in the order of the dimensions; other strides need a copy.
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    view = bytes_of(dense)
    chunks = [view[start : start + _CHUNK] for start in range(0, len(view), _CHUNK)]
    for part in map_(lambda chunk: hashlib.sha256(chunk).digest(), chunks):
        digest.update(part)
    return digest.hexdigest()


def _quantization(tensor: torch.Tensor) -> str:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return f"{tensor.q_scale()!r} {tensor.q_zero_point()}"
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return f"{tensor.q_per_channel_axis()} {scales.tolist()} {zeros.tolist()}"
