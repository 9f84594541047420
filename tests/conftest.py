"""Tests see no engine cache but their own, whatever the machine's environment says."""

from __future__ import annotations

import os

for _name in ("TRT_ET_CACHE", "TRT_ET_CACHE_SIZE"):
    os.environ.pop(_name, None)
