"""Engines in a second file of a program (``docs/blob.md``, "Engines beside the program").

The blob in the program has the engine's name in place of its bytes. The file (``.ptd``) has the
engine under this name, as Torch-TensorRT's ``external_engine_data`` stores it, and under a second
name the front of its blob, with which the runtime checks it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from trt_et.blob.codec import EngineBlob, decode_blob, encode_blob
from trt_et.blob.model import EngineInfo
from trt_et.errors import BlobError, OptionError

FILE_KEY: Final = "external_engine_data"
"""The compile spec that names the file, without ``.ptd``."""

FRONT: Final = "_front"
"""The end of the name of an engine's front."""


def check_file_name(name: object) -> str:
    """Check the name of a file for engines.

    Raises:
        OptionError: It is empty, or no plain name.
    """
    if (
        isinstance(name, str)
        and name not in ("", ".", "..")
        and not name.endswith(".ptd")
        and name.isprintable()
        and not set(name) & set("/\\")
    ):
        return name
    raise OptionError(
        f"external_engines is {name!r}; expected the name of a file without a folder and without "
        "'.ptd', such as 'engines'"
    )


def take_out(blob: bytes, file: str, places: Counter[str]) -> tuple[bytes, dict[str, bytes]]:
    """Take the engine out of a blob.

    The engine's name has a hash of the file's name and of the engine's inputs and outputs, and a
    number. So the program finds the engine in the file of a later export as well.

    Args:
        blob: With its engine.
        file: The name of the file.
        places: How many engines of the program had the same inputs and outputs so far; counted.

    Returns:
        The blob for the program, and the entries for the file, by name.
    """
    decoded = decode_blob(blob, verify=False)
    if decoded.info.engine_key:
        return blob, {}
    if not decoded.info.sha256:
        blob = encode_blob(decoded.engine, decoded.info)
    facts = json.dumps([file, interface_of(decoded.info)])
    digest = hashlib.sha256(facts.encode()).hexdigest()[:16]
    key = f"trt_et_engine_{digest}_{places[digest]}"
    places[digest] += 1
    at = len(blob) - len(decoded.engine)
    stub = encode_blob(b"", replace(decoded.info, engine_key=key))
    return stub, {key: blob[at:], key + FRONT: blob[:at]}


def put_back(stub: EngineBlob, data: Mapping[str, memoryview]) -> bytes | None:
    """Return the blob with its engine; None if the file has none of this name.

    Args:
        stub: The blob in the program.
        data: The entries of the file, by name.

    Raises:
        BlobError: The engine is damaged, has other inputs or outputs, or lacks its checksum.
    """
    key = stub.info.engine_key
    engine, front = (data.get(key + end) for end in ("", FRONT))
    if engine is None:
        return None
    if front is None and stub.has_checksum:
        raise BlobError(f"the engine {key!r} in the file has no checksum")
    if front is None:  # Torch-TensorRT's.
        return encode_blob(engine, replace(stub.info, engine_key=""))
    blob = b"".join((front, engine))
    if interface_of(decode_blob(blob).info) != interface_of(stub.info):
        raise BlobError(f"the engine {key!r} in the file has other inputs or outputs")
    return blob


def interface_of(info: EngineInfo) -> list[Any]:
    """Return what must be equal in two engines that can replace each other, as JSON has it."""
    names = [binding.name for binding in info.bindings]
    bindings = [
        [b.is_input, b.dtype, b.shape, b.min_shape, b.max_shape, b.dim_order, b.value_of]
        for b in info.bindings
    ]
    return [bindings, [[names.index(a.output), names.index(a.input)] for a in info.aliases]]
