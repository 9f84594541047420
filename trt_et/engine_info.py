"""Engine blobs: an engine's description, its GPU, and the bytes that carry both.

The public names of ``trt_et.blob``. This module knows neither torch nor TensorRT.
"""

from trt_et.blob.codec import EngineBlob, decode_blob, encode_blob, encode_front, parse_device_id
from trt_et.blob.container import CHECKSUM_SLICE, MAGIC, MAGIC_ALIASED_IO, MAGIC_REFERENCE
from trt_et.blob.model import DTYPES, MAX_DEVICE_ID, REFERENCE_BUILDER, Alias, Binding, EngineInfo

__all__ = [
    "CHECKSUM_SLICE",
    "DTYPES",
    "MAGIC",
    "MAGIC_ALIASED_IO",
    "MAGIC_REFERENCE",
    "MAX_DEVICE_ID",
    "REFERENCE_BUILDER",
    "Alias",
    "Binding",
    "EngineBlob",
    "EngineInfo",
    "decode_blob",
    "encode_blob",
    "encode_front",
    "parse_device_id",
]
