"""Check of a user's SQL by DuckDB's syntax tree of it.

A statement is one SELECT over names of queries, or DESCRIBE or SUMMARIZE of one. Only a few table
functions are allowed, since others read files or take memory addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from anabranch_service.tables.files import TableError

#: Catalog and schema of all tables, with which a statement may prefix their names.
CATALOG, SCHEMA = "anabranch", "queries"
#: Table functions that read nothing outside of the statement.
_HARMLESS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
#: Kinds of descriptions of a statement's or a table's columns.
_DESCRIPTIONS = frozenset({"DESCRIBE", "SUMMARY"})
#: Kinds of items of a FROM clause, besides tables and functions.
_ITEMS = frozenset({"JOIN", "SUBQUERY", "EXPRESSION_LIST", "EMPTY", "COLUMN_DATA"})


def tables_of(tree: Mapping[str, Any]) -> list[str]:
    """Return the names of the tables that a statement reads, each once; ``tree``: its syntax tree.

    Raises:
        TableError: it is not a single SELECT, or reads something other than tables.
    """
    if tree.get("error"):
        message = str(tree.get("error_message", ""))
        if "SELECT" in message:
            raise _refused("only SELECT statements can be read")
        raise TableError("bad-sql", _first(message), field="sql", remedy="correct the statement")
    statements = tree["statements"]
    if len(statements) != 1:
        raise _refused(f"there are {len(statements)} statements")
    nodes = list(_tree_nodes(statements[0]))
    named = {entry["key"] for node in nodes for entry in _entries(node)}
    found: dict[str, None] = {}
    for node in nodes:
        if "alias" not in node or "sample" not in node:
            continue
        kind = node.get("type")
        if kind == "BASE_TABLE":
            schema, catalog = node.get("schema_name") or "", node.get("catalog_name") or ""
            if schema not in ("", SCHEMA) or catalog not in ("", CATALOG):
                raise _refused(
                    f"{node['table_name']!r} has another schema than {CATALOG}.{SCHEMA}, "
                    "in which all queries are"
                )
            if schema or node["table_name"] not in named:
                found[node["table_name"]] = None
        elif kind == "TABLE_FUNCTION":
            name = str(node["function"].get("function_name", ""))
            if name.lower() not in _HARMLESS:
                raise _refused(f"the table function {name[:100]} is not available here")
        elif kind == "SHOW_REF":
            # Tables that the described statement reads are nodes of their own.
            if node.get("show_type") not in _DESCRIPTIONS or not node.get("query"):
                raise _refused("SHOW is not available here")
        elif kind not in _ITEMS:
            raise _refused(f"{str(kind).lower().replace('_', ' ')} is not available here")
    folded = {name.lower() for name in found}
    if len(folded) < len(found):
        raise _refused("two names of queries differ only in case")
    return list(found)


def _tree_nodes(value: Any) -> Iterator[dict[str, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)


def _entries(node: Mapping[str, Any]) -> list[Any]:
    """Return the common table expressions of a SELECT."""
    found = node.get("cte_map")
    return found["map"] if isinstance(found, dict) else []


def _refused(message: str) -> TableError:
    return TableError(
        "sql-refused",
        message,
        field="sql",
        remedy="send one SELECT over names of queries, with range, generate_series, unnest or "
        "json_each as the only table functions; DESCRIBE has the columns of a query, and "
        "GET /v1/queries the names",
    )


def _first(message: str) -> str:
    return message.partition("\n")[0][:500]
