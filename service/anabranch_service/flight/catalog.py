"""Answers to Flight SQL's commands about the server and its tables, with the schemas that Flight
SQL prescribes.

All queries are tables of one catalog and schema; statements may prefix names of tables with these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from anabranch_service.flight.messages import Command
from anabranch_service.tables.statement import CATALOG, SCHEMA

#: The type of all tables.
TABLE = "TABLE"

_NAMED = pa.field("catalog_name", pa.string(), nullable=False)
_CATALOGS = pa.schema([_NAMED])
_SCHEMAS = pa.schema(
    [pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), nullable=False)]
)
_TABLES = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("table_type", pa.string(), nullable=False),
    ]
)
_WITH_SCHEMA = _TABLES.append(pa.field("table_schema", pa.binary(), nullable=False))
_TYPES = pa.schema([pa.field("table_type", pa.string(), nullable=False)])
_KEYS = pa.schema(
    [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), nullable=False),
        pa.field("column_name", pa.string(), nullable=False),
        pa.field("key_sequence", pa.int32(), nullable=False),
        pa.field("key_name", pa.string()),
    ]
)
_VALUE = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
)
_INFO = pa.schema(
    [pa.field("info_name", pa.uint32(), nullable=False), pa.field("value", _VALUE, nullable=False)]
)

#: Tables by name -> schema of their columns.
Tables = Sequence[tuple[str, pa.Schema]]


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """The answer to a command about the server or its tables.

    Attributes:
        schema: function from the command to the answer's schema. ``rows``: function from the
            command, the tables and the server's version to the answer's rows.
    """

    schema: Callable[[Command], pa.Schema]
    rows: Callable[[Command, Tables, str], pa.Table]


def _schemas(command: Command, tables: Tables, version: str) -> pa.Table:
    there = _in_catalog(command) and _matches(command.text(2), SCHEMA)
    return pa.table([[CATALOG], [SCHEMA]] if there else [[], []], schema=_SCHEMAS)


def _tables(command: Command, tables: Tables, version: str) -> pa.Table:
    kinds = command.texts(4)
    there = _in_catalog(command) and _matches(command.text(2), SCHEMA)
    found = [
        one
        for one in (tables if there and (not kinds or TABLE in kinds) else ())
        if _matches(command.text(3), one[0])
    ]
    count = len(found)
    columns = [[CATALOG] * count, [SCHEMA] * count, [name for name, _ in found], [TABLE] * count]
    if command.flag(5):
        columns.append([schema.serialize().to_pybytes() for _, schema in found])
    return pa.table(columns, schema=_tables_schema(command))


def _tables_schema(command: Command) -> pa.Schema:
    return _WITH_SCHEMA if command.flag(5) else _TABLES


def _info(command: Command, tables: Tables, version: str) -> pa.Table:
    """Return name, version and capabilities of the server, and how identifiers are quoted."""
    known: dict[int, str | bool | int] = {
        0: "anabranch",
        1: version,
        2: pa.__version__,
        3: True,  # read only
        4: True,  # SQL
        5: False,  # Substrait
        8: 0,  # no transactions
        9: False,  # no CancelFlightInfo: the call that reads is cancelled
        500: False,  # no DDL of catalogs, schemas and tables
        501: False,
        502: False,
        504: '"',
    }
    wanted = command.numbers(1) or list(known)
    chosen = [number for number in wanted if number in known]
    kinds, offsets, texts, flags, numbers = [], [], list[str](), list[bool](), list[int]()
    for number in chosen:
        value = known[number]
        if isinstance(value, bool):
            kind, at = 1, len(flags)
            flags.append(value)
        elif isinstance(value, int):
            kind, at = 3, len(numbers)
            numbers.append(value)
        else:
            kind, at = 0, len(texts)
            texts.append(value)
        kinds.append(kind)
        offsets.append(at)
    values = [texts, flags, [], numbers, [], []]
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(v, f.type) for v, f in zip(values, _VALUE, strict=True)],
        [field.name for field in _VALUE],
    )
    return pa.Table.from_arrays([pa.array(chosen, pa.uint32()), union], schema=_INFO)


def _in_catalog(command: Command) -> bool:
    return command.text(1) in (None, CATALOG)


def _matches(pattern: str | None, name: str) -> bool:
    """Whether a name matches a pattern of LIKE; no pattern matches every name.

    >>> _matches("a%_", "abc"), _matches("a_", "abc"), _matches(None, "abc")
    (True, False, True)
    """
    if pattern is None:
        return True
    parts = ({"%": ".*", "_": "."}.get(char, re.escape(char)) for char in pattern)
    return re.fullmatch("".join(parts), name, re.DOTALL) is not None


def _always(schema: pa.Schema) -> Callable[[Command], pa.Schema]:
    return lambda _: schema


def _fixed(rows: pa.Table) -> CatalogAnswer:
    return CatalogAnswer(_always(rows.schema), lambda command, tables, version: rows)


#: Type of a command -> its answer.
LISTINGS = {
    "CommandGetCatalogs": _fixed(pa.table([[CATALOG]], schema=_CATALOGS)),
    "CommandGetDbSchemas": CatalogAnswer(_always(_SCHEMAS), _schemas),
    "CommandGetTables": CatalogAnswer(_tables_schema, _tables),
    "CommandGetTableTypes": _fixed(pa.table([[TABLE]], schema=_TYPES)),
    "CommandGetSqlInfo": CatalogAnswer(_always(_INFO), _info),
    "CommandGetPrimaryKeys": _fixed(_KEYS.empty_table()),
}
