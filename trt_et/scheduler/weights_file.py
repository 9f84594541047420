"""The weights of build requests, in one file that other processes map into their memory.

A storage that several constants, or several partitions, have in common is written once. Nothing is
copied on either side: writing hands the tensors' own memory to the file, reading is a mapping.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from trt_et.errors import BuilderError

__all__ = ["StoredTensor", "WeightsWriter", "read_weights"]

_ALIGNMENT: Final = 64


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor's memory lies in the file, and how it is looked at.

    Attributes:
        offset: Of its first byte.
        nbytes: From its first byte to its last.
        dtype: Its dtype.
        shape: Its shape.
        stride: Its strides, in elements.
        is_parameter: Whether it is a ``torch.nn.Parameter``.
        requires_grad: As the tensor says.
    """

    offset: int
    nbytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    is_parameter: bool
    requires_grad: bool


class WeightsWriter:
    """Appends tensors to a file; readers may open it after :meth:`flush`.

    Args:
        path: The file, made anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb")
        self._written: dict[tuple[int, int, int], int] = {}
        # Memory that is freed could be given to another tensor, which would pass for the first.
        self._kept: list[torch.UntypedStorage] = []

    def add(self, name: str, value: torch.Tensor) -> StoredTensor:
        """Write a tensor, unless its memory is in the file already.

        Args:
            name: What to call it in messages.
            value: A plain strided tensor, on any device.

        Raises:
            BuilderError: It is not one.
            OSError: The file cannot be written.
        """
        tensor = value.detach()
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            raise BuilderError(
                f"constant {name} is a {type(value).__name__} with the layout {value.layout}, "
                "which cannot be sent to another process; build it in this one (executor=None)"
            )
        if tensor.is_conj() or tensor.is_neg() or tensor.is_quantized:
            raise BuilderError(
                f"constant {name} is conjugated, negated or quantized lazily, and cannot be sent "
                "to another process; build it in this one (executor=None)"
            )
        return StoredTensor(
            offset=self._place(tensor),
            nbytes=_span(tensor),
            dtype=tensor.dtype,
            shape=tuple(tensor.shape),
            stride=tuple(tensor.stride()),
            is_parameter=isinstance(value, torch.nn.Parameter),
            requires_grad=value.requires_grad,
        )

    def flush(self) -> None:
        """Make what was added readable by others."""
        self._file.flush()

    def close(self) -> None:
        """Close the file; it stays."""
        self._file.close()

    def __enter__(self) -> WeightsWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self.close()
        except OSError:
            # Closing writes what is buffered: on a full disk that fails again.
            if kind is None:
                raise

    def _place(self, tensor: torch.Tensor) -> int:
        nbytes = _span(tensor)
        if not nbytes:
            return 0
        storage = tensor.untyped_storage()
        start = int(tensor.storage_offset()) * tensor.element_size()
        key = (storage.data_ptr(), start, nbytes)
        if key not in self._written:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._written[key] = self._file.tell()
            self._kept.append(storage)
            raw = torch.empty(0, dtype=torch.uint8, device=tensor.device)
            raw = raw.set_(storage, start, (nbytes,), (1,)).cpu()
            self._file.write(raw.numpy().data)
        return self._written[key]


def read_weights(path: Path, stored: Mapping[str, StoredTensor]) -> dict[str, torch.Tensor]:
    """The tensors, each in the file's own pages; what is written to them stays in this process.

    Args:
        path: What a :class:`WeightsWriter` wrote.
        stored: Name of a tensor to what :meth:`WeightsWriter.add` said of it.

    Raises:
        BuilderError: The file is shorter than that.
    """
    end = max((entry.offset + entry.nbytes for entry in stored.values()), default=0)
    size = path.stat().st_size
    if size < end:
        raise BuilderError(
            f"the weights in {path} have {size} bytes, expected at least {end}: the file was "
            "changed or cut while it was in use; export again"
        )
    mapped = None
    if end:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    storages: dict[tuple[int, int], torch.UntypedStorage] = {}
    values: dict[str, torch.Tensor] = {}
    for name, entry in stored.items():
        where = (entry.offset, entry.nbytes)
        if where not in storages:
            storages[where] = _storage(mapped, entry)
        tensor = torch.empty(0, dtype=entry.dtype)
        tensor.set_(storages[where], 0, entry.shape, entry.stride)
        if entry.is_parameter:
            tensor = torch.nn.Parameter(tensor, requires_grad=entry.requires_grad)
        values[name] = tensor
    return values


def _storage(mapped: mmap.mmap | None, entry: StoredTensor) -> torch.UntypedStorage:
    if mapped is None or not entry.nbytes:
        return torch.empty(0).untyped_storage()
    raw = torch.frombuffer(mapped, dtype=torch.uint8, count=entry.nbytes, offset=entry.offset)
    return raw.untyped_storage()


def _span(tensor: torch.Tensor) -> int:
    """Bytes from the first element to the last."""
    if not tensor.numel():
        return 0
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int((last + 1) * tensor.element_size())
