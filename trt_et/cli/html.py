"""Shows a program's graph as one HTML page that needs no other file."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, Final

from trt_et.inspection import MethodInfo, ProgramInfo, TensorValue

__all__ = ["graph_of", "html_page"]

# In a method with more calls, operators on the CPU that follow each other become one node.
_MOST_NODES: Final = 400


def html_page(program: ProgramInfo, document: dict[str, Any], title: str) -> str:
    """Return the page.

    Args:
        program: The program.
        document: Its facts, which the page shows on click.
        title: The title, such as the file's name.
    """
    graphs = {method.name: graph_of(method) for method in program.methods}
    data = json.dumps({"title": title, "program": document, "graphs": graphs}, default=str)
    template = (resources.files("trt_et.cli") / "page.html").read_text(encoding="utf-8")
    # Within a script, "</" would end it.
    return template.replace("{{data}}", data.replace("</", "<\\/"))


def graph_of(method: MethodInfo) -> dict[str, Any]:
    """Return the nodes and edges of a method: its inputs, its calls, its outputs."""
    nodes: list[dict[str, Any]] = []
    edges: dict[tuple[int, int], str] = {}
    producers: dict[int, int] = {}
    for index, value in enumerate(method.input_values):
        producers[value] = len(nodes)
        nodes.append(_end("input", index, method.values[value]))
    merge = len(method.calls) > _MOST_NODES
    for call in method.calls:
        node = _node(method, call.kind, call.index)
        if merge and nodes and nodes[-1]["kind"] == node["kind"] == "cpu":
            nodes[-1]["operators"] += node["operators"]
            nodes[-1]["label"] = f"{len(nodes[-1]['operators'])} CPU operators"
        else:
            nodes.append(node)
        at = len(nodes) - 1
        for value in dict.fromkeys(call.args):
            tensor = method.values[value]
            if tensor is None or tensor.is_constant:
                continue
            # In a method each tensor is written once, before it is read.
            source = producers.setdefault(value, at)
            if source != at:
                edges[source, at] = _text(tensor)
    for index, value in enumerate(method.output_values):
        if value in producers:
            edges[producers[value], len(nodes)] = _text(method.values[value])
        nodes.append(_end("output", index, method.values[value]))
    return {"nodes": nodes, "edges": [[*ends, text] for ends, text in edges.items()]}


def _node(method: MethodInfo, kind: str, index: int) -> dict[str, Any]:
    if kind == "delegate":
        delegate = method.delegates[index]
        device = f"cuda:{delegate.engine.device_id or 0}" if delegate.engine else "cpu"
        label = f"{delegate.backend_id} {index}"
        return {"kind": "delegate", "label": label, "device": device, "delegate": index}
    name = method.cpu_operators[index]
    kind = "copy" if name.startswith("et_copy::") else "cpu"
    label = name.partition("::")[2].removesuffix(".out").lstrip("_")
    return {"kind": kind, "label": label, "device": "cpu", "operators": [name]}


def _end(kind: str, index: int, tensor: TensorValue | None) -> dict[str, Any]:
    device = tensor.device if tensor else "cpu"
    return {"kind": kind, "label": f"{kind} {index}", "device": device, "tensor": _text(tensor)}


def _text(tensor: TensorValue | None) -> str:
    return f"{tensor.dtype}{list(tensor.sizes)} {tensor.device}" if tensor else "no tensor"
