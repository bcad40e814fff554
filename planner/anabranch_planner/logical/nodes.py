"""The nodes of a logical plan, and the plan as text, as data and as a Graphviz graph.

Expressions are SQL text (Spark's dialect), in which every column is qualified by its alias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

#: The kinds of joins in logical plans, named as in SQL.
INNER, CROSS, LEFT, RIGHT, FULL, SEMI, ANTI, ASOF, ASOF_LEFT = (
    "inner", "cross", "left", "right", "full", "semi", "anti", "asof", "asof left",
)  # fmt: skip


@dataclass(frozen=True)
class Conjunct:
    """One operand of an AND in a logical plan.

    Attributes:
        text: SQL text.
        tables: aliases whose columns it reads.
        sides: (alias, expression) of both sides of an equality between two tables; else None.
    """

    text: str
    tables: frozenset[str]
    sides: tuple[tuple[str, str], tuple[str, str]] | None = None


@dataclass(frozen=True)
class ProjectedColumn:
    """A column of a projection in a logical plan: an expression, and its name."""

    text: str
    name: str = ""

    def __str__(self) -> str:
        named = self.name and not f".{self.text}".endswith(f".{self.name}")
        return f"{self.text} AS {self.name}" if named else self.text


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a logical plan; its text is one line, and does not contain its inputs."""

    inputs: tuple[Node, ...]

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases whose columns are in the output of the plan node."""
        return frozenset().union(*(node.aliases for node in self.inputs))

    @property
    def name(self) -> str:
        """A short name of the plan node, for the text of a join that reads its output."""
        return type(self).__name__


@dataclass(frozen=True, eq=False)
class Scan(Node):
    """Scan of a table under an alias."""

    table: str
    alias: str

    def __str__(self) -> str:
        return f"Scan {self.name}"

    @property
    def aliases(self) -> frozenset[str]:
        """The alias of the table that the plan scans."""
        return frozenset((self.alias,))

    @property
    def name(self) -> str:
        """Name of the table that the plan scans, and its alias if that differs."""
        return self.table if self.alias == self.table else f"{self.table} AS {self.alias}"


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """A filter of a logical plan: the rows of its input that satisfy all conditions."""

    conditions: tuple[Conjunct, ...]

    def __str__(self) -> str:
        return f"Filter {conjunction(self.conditions)}"

    @property
    def name(self) -> str:
        """The name of the filtered input, for texts of the logical plan."""
        return self.inputs[0].name


@dataclass(frozen=True, eq=False)
class Exchange(Node):
    """An exchange that sends rows to hosts by the hash of ``keys``; without keys to all hosts."""

    keys: tuple[str, ...]

    def __str__(self) -> str:
        return f"Exchange hash({', '.join(self.keys)})" if self.keys else "Exchange broadcast"

    @property
    def name(self) -> str:
        """The name of the exchanged input, for texts of the logical plan."""
        return self.inputs[0].name


@dataclass(frozen=True, eq=False)
class Join(Node):
    """A binary join; ``semi`` and ``anti`` keep only the left side's columns."""

    kind: str
    conditions: tuple[Conjunct, ...] = ()

    def __str__(self) -> str:
        return f"Join {self.kind} {conjunction(self.conditions)}".rstrip()

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases of both sides; of the left side only if the join hides the right side."""
        sides = self.inputs[:1] if self.kind in (SEMI, ANTI) else self.inputs
        return frozenset().union(*(side.aliases for side in sides))


@dataclass(frozen=True, eq=False)
class MultiJoin(Node):
    """An inner join of several inputs, without an order of joining.

    Attributes:
        predicates: the equalities between two inputs.
        residual: the other conditions.
        replaces: the converted nodes, each with the rule that made it a member of the group.
    """

    predicates: tuple[Conjunct, ...]
    residual: tuple[Conjunct, ...]
    replaces: tuple[str, ...]

    def __str__(self) -> str:
        residual = f" residual {conjunction(self.residual)}" if self.residual else ""
        return f"MultiJoin of {len(self.inputs)} on {conjunction(self.predicates)}{residual}"


@dataclass(frozen=True, eq=False)
class Union(Node):
    """The rows of all inputs, whose columns have equal names."""

    def __str__(self) -> str:
        return f"Union of {len(self.inputs)}"


@dataclass(frozen=True, eq=False)
class Copies(Node):
    """Repeats each row (INTERSECT ALL); ``count``: SQL text of the number of copies."""

    count: str

    def __str__(self) -> str:
        return f"Copies {self.count}"


@dataclass(frozen=True, eq=False)
class Expand(Node):
    """One row per element of an array or map; ``call``: name of the columns, and function."""

    call: str

    def __str__(self) -> str:
        return f"Expand {self.call}"


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """An aggregation in a logical plan: groups by ``keys``, and the aggregates of each group."""

    keys: tuple[str, ...]
    calls: tuple[str, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.keys)}" if self.keys else ""
        return f"Aggregate{by}: {', '.join(self.calls)}" if self.calls else f"Aggregate{by}"


@dataclass(frozen=True, eq=False)
class Project(Node):
    """A projection: expressions over rows, or over groups if the input is an aggregation."""

    items: tuple[ProjectedColumn, ...]

    def __str__(self) -> str:
        return f"Project {', '.join(map(str, self.items))}"


@dataclass(frozen=True, eq=False)
class Sort(Node):
    """Sorting; ``by`` includes the directions."""

    by: tuple[str, ...]

    def __str__(self) -> str:
        return f"Sort {', '.join(self.by)}"


@dataclass(frozen=True, eq=False)
class Limit(Node):
    """The first ``count`` rows after ``offset``; an empty count means all rows."""

    count: str
    offset: str = ""

    def __str__(self) -> str:
        return f"Limit {self.count or 'none'}" + (f" offset {self.offset}" if self.offset else "")


def conjunction(conditions: tuple[Conjunct, ...]) -> str:
    """Conditions of a logical plan joined by AND."""
    return " AND ".join(c.text for c in conditions)


def ordered(root: Node) -> list[Node]:
    """All nodes of a logical plan, each after the nodes that read its output; the root is first."""
    waiting: dict[Node, int] = {}
    pending, met = [root], {root}
    while pending:
        for source in pending.pop().inputs:
            waiting[source] = waiting.get(source, 0) + 1
            if source not in met:
                met.add(source)
                pending.append(source)
    found, ready = [], [root]
    while ready:
        node = ready.pop(0)
        found.append(node)
        for source in node.inputs:
            waiting[source] -= 1
            if not waiting[source]:
                ready.append(source)
    return found


def to_text(node: Node, depth: int = 0) -> str:
    """The logical plan as a tree of lines, with the root first."""
    lines = ["  " * depth + str(node), *(to_text(source, depth + 1) for source in node.inputs)]
    return "\n".join(lines)


def to_document(node: Node) -> dict[str, Any]:
    """The plan as data: ``node``, ``text``, the node's own fields, and ``inputs``."""
    found: dict[str, Any] = {"node": type(node).__name__, "text": str(node)}
    for name, value in vars(node).items():
        if name != "inputs":
            found[name] = [_held(v) for v in value] if isinstance(value, tuple) else value
    if node.inputs:
        found["inputs"] = [to_document(source) for source in node.inputs]
    return found


def _held(value: Any) -> Any:
    if isinstance(value, ProjectedColumn) and value.name:
        return {"expr": value.text, "name": value.name}
    return value.text if isinstance(value, Conjunct | ProjectedColumn) else value


def to_dot(root: Node) -> str:
    """The plan as a Graphviz graph; rows flow upwards, and multi-way joins are highlighted."""
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
