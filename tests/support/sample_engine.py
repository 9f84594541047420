"""An engine's bytes and what is recorded of it."""

from __future__ import annotations

from trt_et.engine_info import Binding, EngineInfo

INFO = EngineInfo(
    bindings=(
        Binding("x", "float32", (1, 3), True),
        Binding("output0", "float16", (1, 3), False),
    ),
    device_id=2,
    builder="tensorrt_rtx",
    library_version="1.5.0.114",
    compute_capabilities=("8.6", "12.0"),
    target_platform="linux_x86_64",
)


ENGINE = bytes(range(37))
