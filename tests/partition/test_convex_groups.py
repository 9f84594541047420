"""Groups are convex, as few as can be, and cut where little crosses."""

from __future__ import annotations

import operator
import random

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, Node

from trt_et.partition.convex_groups import connected, convex_groups

OPERATORS = {"in": torch.relu, "out": torch.sin, "split": torch.split}


def graph_of(text: str, sizes: dict[str, int] | None = None) -> Graph:
    """A graph from lines ``name = op source source``; the last line names the program's results.

    ``x`` is an input of the program, ``in`` and ``split`` are supported, ``out`` is not, and
    ``pick`` takes a result of ``split``.
    """
    graph = Graph()
    nodes: dict[str, Node] = {}
    *lines, results = text.strip().split("\n")
    for name, _, op, *sources in map(str.split, lines):
        arguments = tuple(nodes[source] for source in sources)
        if op == "x":
            node = graph.placeholder(name)
        elif op == "pick":
            node = graph.call_function(operator.getitem, (*arguments, 0), name=name)
        else:
            node = graph.call_function(OPERATORS[op], arguments, name=name)
        value = torch.empty((sizes or {}).get(name, 1), device="meta")
        node.meta["val"] = (value,) if op == "split" else value
        nodes[name] = node
    graph.output(tuple(nodes[name] for name in results.split()))
    return graph


def is_supported(node: Node) -> bool:
    return node.op == "call_function" and node.target is not torch.sin


def groups_of(text: str, sizes: dict[str, int] | None = None) -> list[str]:
    groups = convex_groups(graph_of(text, sizes), is_supported)
    return [" ".join(node.name for node in nodes) for nodes in groups]


def random_graph(seed: int) -> Graph:
    choose = random.Random(seed)
    lines, names, sizes = ["n0 = x"], ["n0"], {}
    for index in range(1, choose.randint(2, 30)):
        name = f"n{index}"
        near = names[-6:]
        sources = choose.sample(near, min(len(near), choose.choice((1, 1, 2, 3))))
        op = choose.choice(("in", "in", "in", "out", "x"))
        lines.append(f"{name} = {op} {' '.join(sources) if op != 'x' else ''}")
        names.append(name)
        sizes[name] = choose.choice((1, 10, 100))
    return graph_of("\n".join([*lines, " ".join(choose.sample(names, min(len(names), 3)))]), sizes)


SEEDS = st.integers(0, 1 << 30)


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_all_groups_can_be_fused_at_once_without_a_cycle(seed):
    graph = random_graph(seed)
    groups = convex_groups(graph, is_supported)
    home: dict[Node, object] = {node: index for index, ns in enumerate(groups) for node in ns}
    assert set(home) == {node for node in graph.nodes if is_supported(node)}
    sources: dict[object, set[object]] = {}
    for node in graph.nodes:
        here = home.get(node, node)
        found = {home.get(source, source) for source in node.all_input_nodes} - {here}
        sources.setdefault(here, set()).update(found)
    while ready := [each for each, needs in sources.items() if not needs]:
        for each in ready:
            del sources[each]
        for needs in sources.values():
            needs.difference_update(ready)
    assert not sources, "what is left waits for itself"


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_there_are_as_many_groups_as_one_path_needs(seed):
    graph = random_graph(seed)
    stretches: dict[Node, int] = {}
    for node in graph.nodes:
        stretches[node] = max(
            (
                stretches[source] + (is_supported(node) and not is_supported(source))
                for source in node.all_input_nodes
            ),
            default=0,
        )
    assert len(convex_groups(graph, is_supported)) == max(stretches.values())


def test_a_small_input_is_expanded_where_it_is_used():
    text = "x = x\nm = x\na = in x\nbig = in m\nu = out a\nb = in u big\nb"
    assert groups_of(text, {"big": 100}) == ["a", "big b"]


def test_a_large_input_is_reduced_before_it_crosses():
    text = "x = x\nm = x\na = in x\nsmall = in a m\nu = out a\nb = in u small\nb"
    assert groups_of(text, {"a": 100}) == ["a small", "b"]


def test_what_the_first_group_computes_for_several_later_ones_stays_there():
    text = "x = x\nm = in x\na = in x m\nu = out a\nb = in u m\nv = out b\nc = in v m\nc"
    assert groups_of(text, {"m": 10}) == ["m a", "b", "c"]


def test_a_node_never_sinks_below_an_unsupported_user():
    text = "x = x\nk = x\ns = in k\nw = out s\na = in x\nu = out a\nb = in u w s\nb"
    assert groups_of(text, {"s": 100, "k": 1}) == ["s a", "b"]


def test_the_picks_of_several_results_are_where_they_come_from():
    text = "x = x\na = split x\np = pick a\nq = pick a\nu = out p\nb = in u q\nb"
    assert groups_of(text) == ["a p q", "b"]


def test_all_results_sink_together():
    text = "x = x\nm = x\na = in x\nu = out a\ns = split m\np = pick s\nq = pick s\nb = in u p q\nb"
    assert groups_of(text, {"p": 100, "q": 100}) == ["a", "s p q b"]


def test_picks_of_what_is_not_supported_are_in_no_group():
    graph = graph_of("x = x\ns = split x\np = pick s\na = in p\na")
    groups = convex_groups(
        graph, lambda node: is_supported(node) and node.target is not torch.split
    )
    assert [[node.name for node in nodes] for nodes in groups] == [["a"]]


def test_parts_of_a_group_are_found():
    text = "x = x\na = in x\nb = in x\nc = in a\nd = in b c\ne = in x\ne d"
    (nodes,) = convex_groups(graph_of(text), is_supported)
    parts = {frozenset(node.name for node in part) for part in connected(nodes)}
    assert parts == {frozenset("abcd"), frozenset("e")}
