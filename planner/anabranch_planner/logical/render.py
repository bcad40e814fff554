"""A logical plan as SQL, as text, as data and as a picture (Graphviz)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from anabranch_planner.logical.nodes import (
    ANTI,
    CROSS,
    SEMI,
    Aggregate,
    Condition,
    Distinct,
    Exchange,
    Filter,
    Item,
    Join,
    Limit,
    MultiJoin,
    Named,
    Node,
    Project,
    Scan,
    SetOperation,
    Sort,
    inputs,
    queries,
)
from anabranch_planner.logical.tsc import ordered

if TYPE_CHECKING:
    from collections.abc import Iterable

_SIMPLE = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_QUERY = re.compile(r"__query_(\d+)__")


# --- SQL ---------------------------------------------------------------------------------------


def to_sql(node: Node) -> str:
    """The statement that a plan is the plan of, in Spark's dialect."""
    tail = ""
    if isinstance(node, Limit):
        tail = (f" LIMIT {node.count}" if node.count else "") + (
            f" OFFSET {node.offset}" if node.offset else ""
        )
        node = node.input
    if isinstance(node, Sort):
        tail = f" ORDER BY {', '.join(map(_text, node.by))}{tail}"
        node = node.input
    if isinstance(node, SetOperation):
        return f"({to_sql(node.left)}) {node.kind} ({to_sql(node.right)}){tail}"
    distinct = isinstance(node, Distinct)
    if isinstance(node, Distinct):
        node = node.input
    if not isinstance(node, Project):
        return f"SELECT * FROM {_from(node)}{tail}"
    items = ", ".join(
        f"{_text(i)} AS {_quoted(i.name)}" if i.name else _text(i) for i in node.items
    )
    return f"SELECT {'DISTINCT ' if distinct else ''}{items}{_rows(node.input)}{tail}"


def _rows(node: Node | None) -> str:
    """FROM, WHERE, GROUP BY and HAVING."""
    if node is None:
        return ""
    having = ""
    if isinstance(node, Filter) and isinstance(node.input, Aggregate):
        having, node = f" HAVING {_all(node.conditions)}", node.input
    group = ""
    if isinstance(node, Aggregate):
        group = f" GROUP BY {', '.join(node.keys)}" if node.keys else ""
        node = _bare(node.input)
    where = ""
    if isinstance(node, Filter) and not isinstance(node.input, Scan | Named):
        where, node = f" WHERE {_all(node.conditions)}", node.input
    return f" FROM {_from(node)}{where}{group}{having}"


def _from(node: Node) -> str:
    node = _bare(node)
    if isinstance(node, Scan):
        return f"{node.table} AS {node.alias}"
    if isinstance(node, Named):
        return f"({to_sql(node.input)}) AS {node.alias}"
    if isinstance(node, Filter) and isinstance(node.input, Scan | Named):
        where = _all(node.conditions)
        return f"(SELECT * FROM {_from(node.input)} WHERE {where}) AS {node.input.alias}"
    if isinstance(node, Join):
        on = f" ON {_all(node.conditions)}" if node.conditions else ""
        if not on and node.kind != CROSS:
            on = " ON TRUE"
        kind = f"LEFT {node.kind}" if node.kind in (SEMI, ANTI) else node.kind
        return f"{_from(node.left)} {kind.upper()} JOIN {_side(node.right)}{on}"
    if isinstance(node, MultiJoin):
        first, *others, last = map(_side, node.inputs)
        crossed = " CROSS JOIN ".join([first, *others])
        conditions = (*node.predicates, *node.residual)
        on = f"JOIN {last} ON {_all(conditions)}" if conditions else f"CROSS JOIN {last}"
        return f"{crossed} {on}"
    raise TypeError(node)


def _side(node: Node) -> str:
    text = _from(node)
    return f"({text})" if isinstance(_bare(node), Join | MultiJoin) else text


def _bare(node: Node) -> Node:
    return node.input if isinstance(node, Exchange) else node


def _all(conditions: Iterable[Condition]) -> str:
    return " AND ".join(_text(c) for c in conditions)


def _quoted(name: str) -> str:
    return name if _SIMPLE.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _text(held: Condition | Item) -> str:
    return _QUERY.sub(lambda found: to_sql(held.queries[int(found[1])]), held.text)


# --- text, data, picture -----------------------------------------------------------------------


def describe(node: Node) -> str:
    """A node on one line, without its inputs."""
    if isinstance(node, Scan):
        return f"Scan {node.table}" + (f" AS {node.alias}" if node.alias != node.table else "")
    if isinstance(node, Named):
        return f"Named {node.alias}({', '.join(node.columns)})"
    if isinstance(node, Filter):
        return f"Filter {_listed(node.conditions)}"
    if isinstance(node, Exchange):
        return f"Exchange hash({', '.join(node.keys)})" if node.keys else "Exchange broadcast"
    if isinstance(node, Join):
        return f"Join {node.kind} {_listed(node.conditions)}".rstrip()
    if isinstance(node, MultiJoin):
        residual = f" residual {_listed(node.residual)}" if node.residual else ""
        return f"MultiJoin of {len(node.inputs)} on {_listed(node.predicates)}{residual}"
    if isinstance(node, Aggregate):
        by = f" by {', '.join(node.keys)}" if node.keys else ""
        return f"Aggregate{by}: {', '.join(node.calls)}"
    if isinstance(node, Project):
        return "Project " + ", ".join(
            f"{i.text} AS {i.name}" if i.name and not i.text.endswith(f".{i.name}") else i.text
            for i in node.items
        )
    if isinstance(node, Sort):
        return f"Sort {', '.join(i.text for i in node.by)}"
    if isinstance(node, Limit):
        return f"Limit {node.count or 'none'}" + (f" offset {node.offset}" if node.offset else "")
    return node.kind.capitalize() if isinstance(node, SetOperation) else "Distinct"


def name_of(node: Node) -> str:
    """An input of a join in short: a table, the name of a query, or what else it is."""
    if isinstance(node, Filter | Exchange):
        return name_of(node.input)
    if isinstance(node, Named):
        return node.alias
    if isinstance(node, Scan):
        return node.table if node.alias == node.table else f"{node.table} AS {node.alias}"
    return type(node).__name__


def to_text(root: Node) -> str:
    """A plan as a tree of lines, the root first; what is read twice is written out once."""
    numbers = _shared(root)
    lines: list[str] = []

    def write(node: Node, depth: int) -> None:
        number = numbers.get(node)
        again = number is not None and any(
            line.lstrip().startswith(f"[{number}]") for line in lines
        )
        mark = "" if number is None else f"[{number}] "
        lines.append("  " * depth + mark + ("as above" if again else describe(node)))
        if not again:
            for source in (*inputs(node), *queries(node)):
                write(source, depth + 1)

    write(root, 0)
    return "\n".join(lines)


def to_document(root: Node) -> dict[str, Any]:
    """A plan as data: ``node``, ``text`` and more of what it is, ``inputs``, and ``queries`` inside
    its expressions.

    What is read twice has an ``id``; from the second time on there is a ``ref`` to it only.
    """
    numbers, done = _shared(root), set[Node]()

    def write(node: Node) -> dict[str, Any]:
        if node in done and node in numbers:
            return {"ref": numbers[node]}
        done.add(node)
        found: dict[str, Any] = {"node": type(node).__name__, "text": describe(node)}
        if node in numbers:
            found["id"] = numbers[node]
        for name, value in vars(node).items():
            if name in ("input", "left", "right", "inputs"):
                continue
            if isinstance(value, tuple):
                value = [
                    {"expr": v.text, "name": v.name}
                    if isinstance(v, Item) and v.name
                    else v.text
                    if isinstance(v, Condition | Item)
                    else v
                    for v in value
                ]
            found[name] = value
        for part, nodes in (("inputs", inputs(node)), ("queries", queries(node))):
            if nodes:
                found[part] = [write(n) for n in nodes]
        return found

    return write(root)


def to_dot(root: Node) -> str:
    """A plan as a Graphviz graph, rows flowing upwards; multi-way joins stand out."""
    nodes = ordered(root)
    number = {node: f"n{i}" for i, node in enumerate(nodes)}
    lines = ["digraph plan {", '  rankdir=BT; node [shape=box, fontname="sans-serif"];']
    for node in nodes:
        text = describe(node)
        label = (text if len(text) <= 120 else text[:117] + "...").replace("\\", "\\\\")
        label = label.replace('"', '\\"')
        style = ' style=filled fillcolor="#cfe8ff"' if isinstance(node, MultiJoin) else ""
        lines.append(f'  {number[node]} [label="{label}"{style}];')
        lines += [f"  {number[n]} -> {number[node]};" for n in inputs(node)]
        lines += [f"  {number[n]} -> {number[node]} [style=dashed];" for n in queries(node)]
    return "\n".join([*lines, "}"])


def _shared(root: Node) -> dict[Node, int]:
    """The nodes that are read more than once, numbered."""
    counts: dict[Node, int] = {}
    for node in ordered(root):
        for source in (*inputs(node), *queries(node)):
            counts[source] = counts.get(source, 0) + 1
    return {node: i for i, node in enumerate((n for n, c in counts.items() if c > 1), 1)}


def _listed(conditions: Iterable[Condition]) -> str:
    return " AND ".join(c.text for c in conditions)
