"""Export of ``transformers`` language models for ExecuTorch's runners.

::

    from trt_et.llm import export_llm

    program = export_llm(model, cache_length=2048)
    with open("model.pte", "wb") as file:
        program.write_to_file(file)

See ``docs/guides/language-models.md``.
"""

from __future__ import annotations

from trt_et.llm.export import export_llm
from trt_et.llm.generate import TokenGenerator
from trt_et.llm.multimodal import export_multimodal
from trt_et.llm.speech import export_speech
from trt_et.llm.transducer import export_transducer

__all__ = [
    "TokenGenerator",
    "export_llm",
    "export_multimodal",
    "export_speech",
    "export_transducer",
]
