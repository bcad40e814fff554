"""Catalogs: tables that statements may read; the tables of TPC-H and TPC-DS are included."""

from __future__ import annotations

from importlib import resources
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import parse_type
from anabranch_planner.documents.yaml import load_yaml
from benchmarks.papers.tsc.statements import Catalog

#: Names of the included catalogs.
KNOWN = ("tpch", "tpcds")


def text_of(name: str) -> str:
    """Return the text of the file of one of :data:`KNOWN`."""
    return resources.files(__package__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")


def parse_catalog(text: str) -> Catalog:
    """Parse a YAML catalog of tables: ``table: {column: type}``.

    Raises:
        PlannerError: the document has another form, or an unknown type.
    """
    document = load_yaml(text)
    if not isinstance(document, dict) or not document:
        raise _malformed("the catalog names no tables", "catalog")
    found: Catalog = {}
    for table, columns in document.items():
        if not isinstance(columns, dict) or not columns:
            raise _malformed(f"table {table!r} has no columns", str(table))
        found[str(table)] = {str(c): _type(table, c, kind) for c, kind in columns.items()}
    return found


def _type(table: Any, column: Any, kind: Any) -> str:
    try:
        return str(parse_type(str(kind)))
    except PlannerError as cause:
        raise PlannerError(
            cause.code, cause.message, field=f"{table}.{column}", remedy=cause.remedy
        ) from cause


def _malformed(message: str, field: str) -> PlannerError:
    return PlannerError(
        "malformed-catalog", message, field=field, remedy="write 'table: {column: type}'"
    )
