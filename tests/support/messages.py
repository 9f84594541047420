"""The messages that the sources of trt_et can give to a user.

A message is the text as it is written, with ``HOLE`` for each part that is put in at run time.

Collected are, in Python: what the exceptions of ``trt_et.errors``, typer's and the command line's
``fail`` are made with, and the texts of warnings, also where they are given as ``warning=``; in
C++: the texts of failures, of warnings, and of what the runner writes to its standard error stream.
Not collected are exceptions of other types (``ValueError``, ``TypeError``, ...): they are caught
inside trt_et, or say that it has a bug. A message that is one hole passes another one on, which is
collected where it is written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trt_et import errors

__all__ = ["HOLE", "messages_of_cpp", "messages_of_python"]

HOLE = "\0"
_MADE_WITH_A_MESSAGE = {*errors.__all__, "typer.BadParameter", "fail"}
_LOGGED = {"warning", "error", "critical", "exception", "warn"}
_FORMAT = re.compile(r"%[-+ #0-9.]*(?:ll|l|z|h)?[a-zA-Z]")
# The prefixes of lines, which say who writes.
_WRITER = re.compile(r"^(?:executor_runner|TensorRTBackend): ")


def messages_of_python(text: str) -> set[str]:
    """The messages in a Python file's text."""
    tree = ast.parse(text)
    found: set[str] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            names = _assigned(function)
            for value in _made_with(function):
                found |= {_tidy(one) for one in _alternatives(value, names)}
    return {one for one in found if one.strip(HOLE + " .:;()")}


def _made_with(function: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.keyword) and node.arg == "warning":
            yield node.value
        elif isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func)
            logged = (
                name.rpartition(".")[0] in ("_log", "warnings") and name.split(".")[1] in _LOGGED
            )
            if name in _MADE_WITH_A_MESSAGE or logged:
                yield node.args[0]


def _assigned(function: ast.AST) -> dict[str, list[ast.expr]]:
    """Local names and what is assigned to them."""
    names: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    names.setdefault(target.id, []).append(node.value)
    return names


def _alternatives(node: ast.expr, names: dict[str, list[ast.expr]]) -> list[str]:
    """The texts that an expression can be."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [_FORMAT.sub(HOLE, node.value)]
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.Constant) else HOLE for v in node.values]
        return ["".join(map(str, parts))]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = [_alternatives(side, names) for side in (node.left, node.right)]
        return [one + other for one in sides[0] for other in sides[1]]
    if isinstance(node, ast.IfExp):
        return [*_alternatives(node.body, names), *_alternatives(node.orelse, names)]
    if isinstance(node, ast.Name) and node.id in names:
        others = {key: value for key, value in names.items() if key != node.id}
        return [text for value in names[node.id] for text in _alternatives(value, others)]
    return [HOLE]


_STRING = r'"(?:[^"\\\n]|\\.)*"'
_FAILS = re.compile(
    r"\b(?:fail|report|refuse|warn)\(|\{Error::\w+,|log\(\s*LogLevel::(?:error|info),"
    r"|\blog\(\s*TRT_ET_LOG_(?:ERROR|WARNING|INFO),|std::fprintf\(\s*stderr,|std::fputs\(|\bproblem_?\s*=(?!=)"
)


def messages_of_cpp(text: str) -> set[str]:
    """The messages in a C++ file's text."""
    text = re.sub(rf"({_STRING})|//[^\n]*", lambda match: match[1] or "", text)
    text = re.sub(r"^\s*#[^\n]*", "", text, flags=re.MULTILINE)
    found = set()
    for match in _FAILS.finditer(text):
        for argument in _arguments(text[match.end() :]):
            if re.search(_STRING, argument):
                found |= {_tidy(one) for one in _texts(argument, match[0])}
                break
    return {one for one in found if one.strip(HOLE + " .:;()")}


def _arguments(text: str) -> Iterator[str]:
    """The arguments from here to where the call's bracket closes or the statement ends."""
    depth, begin, index = 0, 0, 0
    while index < len(text):
        if string := re.compile(_STRING).match(text, index):
            index = string.end()
            continue
        character = text[index]
        if depth == 0 and character in ",);}":
            yield text[begin:index]
            begin = index + 1
            if character != ",":
                return
        depth += (character in "([{") - (character in ")]}")
        index += 1


def _texts(argument: str, call: str) -> list[str]:
    # Both sides of "a ? b : c"; what looks like one inside of a string is set aside.
    chosen = re.split(
        r"\?|(?<!:):(?!:)",
        re.sub(_STRING, lambda m: m[0].replace("?", "\1").replace(":", "\2"), argument),
    )
    texts = []
    for one in chosen[1:] if len(chosen) == 3 else ["".join(chosen)]:
        parts = re.split(rf"({_STRING})", one)
        # Between literals: nothing (they are one), or what is put in.
        text = "".join(
            ast.literal_eval(part) if index % 2 else HOLE if part.strip(" \n+") else ""
            for index, part in enumerate(parts)
        )
        text = _FORMAT.sub(HOLE, text.replace("\1", "?").replace("\2", ":"))
        texts.append(HOLE + ": " + text if call.startswith("refuse") else text)
    return texts


def _tidy(text: str) -> str:
    return re.sub(f"{HOLE}+", HOLE, " ".join(_WRITER.sub("", text).split()))
