"""Tests of logical plan nodes: every form, and the order of nodes that have several readers."""

from __future__ import annotations

from anabranch_planner.logical.nodes import (
    Conjunct,
    Filter,
    Join,
    Limit,
    Node,
    Project,
    ProjectedColumn,
    Scan,
    ordered,
    to_document,
    to_dot,
    to_text,
)

EQUAL = Conjunct("o.k = p.k", frozenset("op"), (("o", "o.k"), ("p", "p.k")))
SOME = Conjunct("o.s = 'a \"b\" \\ c'", frozenset("o"))


def plan() -> Node:
    orders = Filter((Scan((), "orders", "o"),), (SOME,))
    join = Join((orders, Scan((), "p", "p")), "inner", (EQUAL,))
    return Limit(
        (Project((join,), (ProjectedColumn("o.k", "k"), ProjectedColumn("o.k + 1", "n"))),), "3"
    )


def test_a_plan_as_text() -> None:
    assert to_text(plan()).splitlines() == [
        "Limit 3",
        "  Project o.k, o.k + 1 AS n",
        "    Join inner o.k = p.k",
        "      Filter o.s = 'a \"b\" \\ c'",
        "        Scan orders AS o",
        "      Scan p",
    ]


def test_a_plan_as_data() -> None:
    found = to_document(plan())
    assert {k: found[k] for k in ("node", "text", "count", "offset")} == {
        "node": "Limit", "text": "Limit 3", "count": "3", "offset": "",
    }  # fmt: skip
    (project,) = found["inputs"]
    assert project["items"] == [{"expr": "o.k", "name": "k"}, {"expr": "o.k + 1", "name": "n"}]
    (join,) = project["inputs"]
    assert (join["kind"], join["conditions"]) == ("inner", ["o.k = p.k"])
    scan = join["inputs"][1]
    assert scan == {"node": "Scan", "text": "Scan p", "table": "p", "alias": "p"}


def test_a_plan_as_a_picture() -> None:
    lines = to_dot(plan()).splitlines()
    assert lines[0].startswith("digraph")
    assert '  n3 [label="Filter o.s = \'a \\"b\\" \\\\ c\'"];' in lines
    assert sum("->" in line for line in lines) == 5


def test_a_shared_node_comes_after_all_of_its_readers() -> None:
    scan = Scan((), "p", "p")
    near, far = Filter((scan,), (SOME,)), Filter((Filter((scan,), (SOME,)),), (SOME,))
    root = Join((near, far), "cross")
    found = ordered(root)
    assert len(found) == 5
    assert (found[0], found[-1]) == (root, scan)
