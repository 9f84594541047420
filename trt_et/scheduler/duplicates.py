"""Finds partitions whose engines would be equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

import torch

from trt_et.scheduler.engine_key import WeightDigests, memory_of

__all__ = ["DuplicateIndex"]

T = TypeVar("T")


class DuplicateIndex(Generic[T]):
    """Partitions that look equal; their weights are looked up, never compared in pairs.

    Args:
        digests: Of weights; shared by all indices of an export.
    """

    def __init__(self, digests: WeightDigests) -> None:
        self._digests = digests
        self._alive: list[Mapping[str, torch.Tensor]] = []
        self._by_memory: dict[object, T] = {}
        self._by_content: dict[object, T] = {}
        self._unread: tuple[T, Mapping[str, torch.Tensor]] | None = None

    def find_or_add(self, partition: T, weights: Mapping[str, torch.Tensor]) -> T | None:
        """The partition that had these weights before; None where this one is the first."""
        memory = tuple(sorted((name, str(memory_of(tensor))) for name, tensor in weights.items()))
        if not self._by_memory:
            self._unread = (partition, weights)
            other = partition
        elif memory in self._by_memory:
            return self._by_memory[memory]
        else:
            if self._unread is not None:
                first, its_weights = self._unread
                self._by_content[self._content(its_weights)] = first
                self._unread = None
            other = self._by_content.setdefault(self._content(weights), partition)
        self._alive.append(weights)  # Or its memory could become another's.
        self._by_memory[memory] = other
        return None if other is partition else other

    def _content(self, weights: Mapping[str, torch.Tensor]) -> object:
        return tuple(sorted(self._digests.of(weights).items()))
