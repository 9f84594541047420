"""Tests see no engine cache but their own, whatever the machine's environment says."""

from __future__ import annotations

import os

from tests.torch_speed import collect_operators_once

for _name in ("TRT_ET_CACHE", "TRT_ET_CACHE_SIZE"):
    os.environ.pop(_name, None)

collect_operators_once()
