"""A logical plan as text, as data and as a picture (Graphviz)."""

from __future__ import annotations

from typing import Any

from anabranch_planner.logical.nodes import Condition, Item, MultiJoin, Node
from anabranch_planner.logical.tsc import ordered


def to_text(node: Node, depth: int = 0) -> str:
    """A plan as a tree of lines, the root first."""
    lines = ["  " * depth + str(node), *(to_text(source, depth + 1) for source in node.inputs)]
    return "\n".join(lines)


def to_document(node: Node) -> dict[str, Any]:
    """A plan as data: ``node``, ``text``, its own fields, and ``inputs``."""
    found: dict[str, Any] = {"node": type(node).__name__, "text": str(node)}
    for name, value in vars(node).items():
        if name != "inputs":
            found[name] = [_held(v) for v in value] if isinstance(value, tuple) else value
    if node.inputs:
        found["inputs"] = [to_document(source) for source in node.inputs]
    return found


def _held(value: Any) -> Any:
    if isinstance(value, Item) and value.name:
        return {"expr": value.text, "name": value.name}
    return value.text if isinstance(value, Condition | Item) else value


def to_dot(root: Node) -> str:
    """A plan as a Graphviz graph, rows flowing upwards; multi-way joins stand out."""
    nodes = ordered(root)
    number = {node: f"n{i}" for i, node in enumerate(nodes)}
    lines = ["digraph plan {", '  rankdir=BT; node [shape=box, fontname="sans-serif"];']
    for node in nodes:
        text = str(node)
        label = (text if len(text) <= 120 else text[:117] + "...").replace("\\", "\\\\")
        label = label.replace('"', '\\"')
        style = ' style=filled fillcolor="#cfe8ff"' if isinstance(node, MultiJoin) else ""
        lines.append(f'  {number[node]} [label="{label}"{style}];')
        lines += [f"  {number[source]} -> {number[node]};" for source in node.inputs]
    return "\n".join([*lines, "}"])
