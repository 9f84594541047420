"""The native blob parser, held to docs/blob.md and to the Python one."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable

import pytest

from tests.support.blobs.vectors import BAD, GOOD, facts_of
from trt_et.engine_info import decode_blob

INVALID_PROGRAM = 0x23
Describe = Callable[[bytes], tuple[int, str]]


@pytest.fixture
def describe(blob_reader):
    out = ctypes.create_string_buffer(1 << 20)

    def call(blob):
        code = blob_reader.read_blob(blob, len(blob), out, len(out))
        return code, out.value.decode()

    return call


@pytest.mark.parametrize("name", GOOD)
def test_good_blobs_mean_the_same_in_both_languages(describe, name):
    code, text = describe(GOOD[name])
    assert code > 0, text
    assert json.dumps(json.loads(text), sort_keys=True) == json.dumps(json.loads(text))
    facts = json.loads(text)
    engine = GOOD[name][facts.pop("engine_offset") :][: facts["engine_size"]]
    assert engine == bytes(decode_blob(GOOD[name]).engine)
    assert facts == facts_of(GOOD[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_blobs_are_refused(describe, name):
    code, text = describe(BAD[name])
    assert code == -INVALID_PROGRAM
    assert 0 < len(text) <= 200
