"""A program as one HTML page that needs nothing else: its graph, and details on click."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from trt_et.inspection.document import to_document
from trt_et.inspection.model import MethodInfo, ProgramInfo
from trt_et.inspection.pte import TensorValue

__all__ = ["graph_of", "html_page"]

# More instructions than this are not drawn one by one: operators that follow each other on the CPU
# become one node.
_MOST_NODES: Final = 400


def html_page(program: ProgramInfo, title: str) -> str:
    """The page.

    Args:
        program: What to show.
        title: Such as the file's name.
    """
    document = to_document(program)
    graphs = {method.name: graph_of(method) for method in program.methods}
    data = json.dumps({"title": title, "program": document, "graphs": graphs}, default=str)
    template = (resources.files("trt_et.inspection") / "page.html").read_text(encoding="utf-8")
    # Within a script, "</" would end it.
    return template.replace("{{data}}", data.replace("</", "<\\/"))


def graph_of(method: MethodInfo) -> dict[str, Any]:
    """The nodes and edges of a method: its inputs, its instructions, its outputs."""
    nodes: list[dict[str, Any]] = []
    edges: dict[tuple[int, int], str] = {}
    producers: dict[int, int] = {}
    for index, value in enumerate(method.input_values):
        producers[value] = len(nodes)
        nodes.append(_end("input", index, method.values[value]))
    merge = len(method.calls) > _MOST_NODES
    for call in method.calls:
        if call.kind not in ("kernel", "delegate"):
            continue
        node = _node(method, call.kind, call.index)
        if merge and nodes and nodes[-1]["kind"] == node["kind"] == "cpu":
            at = len(nodes) - 1
            nodes[at]["operators"].extend(node["operators"])
            nodes[at]["label"] = f"{len(nodes[at]['operators'])} CPU operators"
        else:
            at = len(nodes)
            nodes.append(node)
        for value in dict.fromkeys(call.args):
            tensor = method.values[value]
            if tensor is None or tensor.is_constant:
                continue
            # In a method each tensor is written once, before it is read.
            source = producers.setdefault(value, at)
            if source != at:
                edges[source, at] = _tensor(tensor)
    for index, value in enumerate(method.output_values):
        if value in producers:
            edges[producers[value], len(nodes)] = _tensor(method.values[value])
        nodes.append(_end("output", index, method.values[value]))
    return {"nodes": nodes, "edges": [[*ends, text] for ends, text in edges.items()]}


def _node(method: MethodInfo, kind: str, index: int) -> dict[str, Any]:
    if kind == "delegate":
        delegate = method.delegates[index]
        device = "cpu"
        if delegate.engine is not None:
            device = f"cuda:{delegate.engine.device_id or 0}"
        label = f"{delegate.backend_id} {index}"
        return {"kind": "delegate", "label": label, "device": device, "delegate": index}
    name = method.cpu_operators[index]
    copy = name.startswith("et_copy::")
    label = name.partition("::")[2].removesuffix(".out").lstrip("_")
    return {"kind": "copy" if copy else "cpu", "label": label, "device": "cpu", "operators": [name]}


def _end(kind: str, index: int, tensor: TensorValue | None) -> dict[str, Any]:
    device = tensor.device if tensor else "cpu"
    label = f"{kind} {index}"
    return {"kind": kind, "label": label, "device": device, "tensor": _tensor(tensor)}


def _tensor(tensor: TensorValue | None) -> str:
    return f"{tensor.dtype}{list(tensor.sizes)} {tensor.device}" if tensor else "no tensor"
