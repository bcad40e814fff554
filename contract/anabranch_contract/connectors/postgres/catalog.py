"""Descriptions of PostgreSQL tables, read from the catalog, and checks of streams against them.

Callers pass an open cursor of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anabranch_contract.errors import StreamError
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_contract.queries.types import FLOATING, DataType, TypeKind

_TEXT = frozenset({TypeKind.STRING})
_WHOLE = (TypeKind.SMALLINT, TypeKind.INT, TypeKind.BIGINT)
#: Type of PostgreSQL (``pg_type.typname``) -> types of columns that can hold its values; values of
#: all other types are read as strings.
_HOLDERS: Mapping[str, frozenset[TypeKind]] = {
    "bool": frozenset({TypeKind.BOOLEAN}),
    "int2": frozenset(_WHOLE),
    "int4": frozenset(_WHOLE[1:]),
    "int8": frozenset(_WHOLE[2:]),
    "float4": FLOATING,
    "float8": frozenset({TypeKind.DOUBLE}),
    "numeric": frozenset({TypeKind.DECIMAL}),
    "date": frozenset({TypeKind.DATE}),
    "timestamp": frozenset({TypeKind.TIMESTAMP_NTZ}),
    "timestamptz": frozenset({TypeKind.TIMESTAMP}),
    "bytea": frozenset({TypeKind.BINARY}),
}
#: SQL for the name of a column's type: for a domain the name of its base type, for types outside of
#: ``pg_catalog`` the name ``text``.
_TYPE = """
    WITH RECURSIVE base AS (
        SELECT t.oid AS of, t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace,
               t.typtypmod AS modifier
        FROM pg_type t WHERE t.oid = ANY(%s)
        UNION ALL
        SELECT b.of, t.oid, t.typtype, t.typbasetype, t.typname, t.typnamespace,
               CASE WHEN b.modifier >= 0 THEN b.modifier ELSE t.typtypmod END
        FROM base b JOIN pg_type t ON b.typtype = 'd' AND t.oid = b.typbasetype)
    SELECT of, CASE WHEN typnamespace = 'pg_catalog'::regnamespace THEN typname ELSE 'text' END,
           modifier
    FROM base WHERE typtype <> 'd'
"""
_TABLE = """
    SELECT c.oid, c.relkind, c.relreplident, c.reltoastrelid <> 0, c.relpersistence
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
    SELECT attname, atttypid, atttypmod, attnotnull, attgenerated <> '', attstorage <> 'p'
    FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEYS = """
    SELECT i.indisprimary, i.indisreplident, array_agg(a.attname::text)
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid
        AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
    WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate
        AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid, i.indisprimary, i.indisreplident ORDER BY i.indisprimary DESC
"""


@dataclass(frozen=True, slots=True)
class DatabaseTable:
    """A table as PostgreSQL's catalog describes it.

    Attributes:
        oid: the table's id, which is never reused.
        columns: name -> type's name (:data:`_TYPE`) and modifier, in the table's order.
        keys: columns of each unique index over columns that are never NULL, the primary key first.
        is_full: whether the log's changes have all values of the old row (REPLICA IDENTITY FULL).
        identity: columns whose old values changes contain if ``is_full`` is false; empty: none.
        absent: columns that changes may lack, because their values are stored out of line (TOAST).
    """

    oid: int
    columns: Mapping[str, tuple[str, int]]
    keys: tuple[tuple[str, ...], ...]
    is_full: bool
    identity: tuple[str, ...]
    absent: frozenset[str]


def read_table(cursor: Any, schema: str, name: str) -> DatabaseTable:
    """Read a PostgreSQL table's description from the catalog.

    Raises:
        StreamError: there is no such table, or its changes can't be followed.
    """
    cursor.execute(_TABLE, (schema, name))
    found = cursor.fetchone()
    if found is None:
        raise StreamError(
            "no-table",
            "the database has no such table",
            field="source.options.table",
            remedy="create the table, or correct the options table and url",
        )
    oid, kind, identity, has_apart, persistence = found
    if kind != "r" or persistence != "p":
        raise StreamError(
            "unsupported-table",
            "this is a view, a partitioned, foreign, temporary or unlogged table",
            field="source.options.table",
            remedy="give a plain table; each partition can be a stream",
        )
    cursor.execute(_COLUMNS, (oid,))
    columns = cursor.fetchall()
    types = type_names(cursor, [column[1] for column in columns])
    cursor.execute(_KEYS, (oid,))
    never_null = {column[0] for column in columns if column[3]}
    order = [column[0] for column in columns]
    keys, of_changes = list[tuple[str, ...]](), tuple[str, ...]()
    for is_primary, is_identity, names in cursor.fetchall():
        keys.append(tuple(sorted(names, key=order.index)))
        if is_primary if identity == "d" else identity == "i" and is_identity:
            of_changes = keys[-1]
    plain = [column for column in columns if not column[4]]
    return DatabaseTable(
        oid,
        {name: typed(types, type, modifier) for name, type, modifier, *_ in plain},
        tuple(key for key in keys if never_null.issuperset(key)),
        identity == "f",
        of_changes,
        frozenset(column[0] for column in plain if has_apart and column[5]),
    )


def type_names(cursor: Any, oids: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Return the name and modifier of each PostgreSQL type (see :data:`_TYPE`)."""
    cursor.execute(_TYPE, (list(oids),))
    return {oid: (name, modifier) for oid, name, modifier in cursor.fetchall()}


def typed(types: Mapping[int, tuple[str, int]], oid: int, modifier: int) -> tuple[str, int]:
    """Return type name and modifier of a PostgreSQL column (of the base type for a domain)."""
    name, of_domain = types.get(oid, ("text", -1))
    return name, modifier if modifier >= 0 else of_domain


def check_table(
    table: DatabaseTable, columns: Sequence[tuple[str, DataType]], changes: ChangeFormat, place: str
) -> None:
    """Check that a stream can be read from a PostgreSQL table and from its later changes.

    Args:
        columns: (name, type) of the stream's columns without the operation.
        changes: form in which rows of the stream state inserts and deletes.
        place: the table's name in SQL.

    Raises:
        StreamError: naming the column, with a remedy.
    """
    check_columns(columns, table.columns)
    if changes.operation in table.columns:
        raise StreamError(
            "bad-operation",
            f"the table has a column {changes.operation!r}, the name of the operation",
            field="changes.operation",
            remedy="name another column for the operation (--operation), without declaring it",
        )
    key = changes.key
    keyed = "; or register kind upsert with key " + ", ".join(table.keys[0]) if table.keys else ""
    if not key and not table.is_full:
        raise StreamError(
            "incomplete-changes",
            "deletes have the key only, and a stream of kind changes needs the whole row",
            field="source.options.table",
            remedy=f"ALTER TABLE {place} REPLICA IDENTITY FULL{keyed}",
        )
    if key and not any(set(key) == set(one) for one in table.keys):
        known = "; ".join(", ".join(one) for one in table.keys)
        raise StreamError(
            "not-a-key",
            f"the table has no unique index over {', '.join(key)} as NOT NULL columns",
            field="key",
            remedy=f"give {known}"
            if known
            else f"add a primary key; or ALTER TABLE {place} REPLICA IDENTITY FULL and register"
            " kind changes",
        )
    if key and not table.is_full and set(key) != set(table.identity):
        raise StreamError(
            "incomplete-changes",
            f"changes have {', '.join(table.identity) or 'nothing'} of the old row only, and the"
            f" stream's key is {', '.join(key)}",
            field="source.options.table",
            remedy=f"ALTER TABLE {place} REPLICA IDENTITY FULL"
            + f"; or give {', '.join(table.identity)} as key" * bool(table.identity),
        )
    apart = [name for name, _ in columns if name in table.absent]
    if apart and not table.is_full:
        raise StreamError(
            "incomplete-changes",
            f"updates may lack values of {', '.join(apart)}, which are stored apart if they are"
            " large",
            field="source.options.table",
            remedy=f"ALTER TABLE {place} REPLICA IDENTITY FULL; or leave these columns out",
        )


def holders(type: str) -> frozenset[TypeKind]:
    """Return the types of stream columns that can hold values of the PostgreSQL type named ``type``
    in the catalog. Values of any type can be read as text."""
    return _HOLDERS.get(type, frozenset()) | _TEXT


def column_type(type: str, modifier: int) -> str:
    """Return the type of a stream's column for a column of a PostgreSQL table.

    Args:
        type: name in the catalog.
        modifier: ``atttypmod``, which encodes precision and scale of a numeric; -1: none.

    >>> column_type("numeric", (12 << 16 | 2) + 4), column_type("int4", -1), column_type("uuid", -1)
    ('decimal(12,2)', 'int', 'string')
    """
    if type == "numeric":
        precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
        fits = modifier >= 4 and precision <= 38 and scale <= precision
        return f"decimal({precision},{scale})" if fits else "decimal(38,10)"
    kinds = _HOLDERS.get(type, _TEXT)
    order = (*_WHOLE, TypeKind.FLOAT, *kinds)
    return str(next(kind for kind in order if kind in kinds))


def check_columns(
    columns: Sequence[tuple[str, DataType]], found: Mapping[str, tuple[str, int]]
) -> None:
    """Check that a stream's columns can hold the values of a PostgreSQL table's columns.

    Args:
        columns: (name, type) of the stream's columns without the operation.
        found: column of the table -> its type's name in the catalog, and ``atttypmod``.

    Raises:
        StreamError: naming the column.
    """
    for name, kind in columns:
        if name not in found:
            raise StreamError(
                "no-column",
                f"the table has no column {name!r}",
                field=f"columns.{name}",
                remedy="it has " + ", ".join(sorted(found)),
            )
        type, modifier = found[name]
        wanted = column_type(type, modifier)
        fits = kind.kind in holders(type)
        if type == "numeric" and kind.kind is TypeKind.DECIMAL and modifier >= 4:
            precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
            fits = kind.scale >= scale and kind.precision - kind.scale >= precision - scale
        if not fits:
            raise StreamError(
                "unsupported-type",
                f"column {name!r} of type {kind} can't hold the table's {type}",
                field=f"columns.{name}",
                remedy=f"declare it as {wanted}" + ("" if wanted == "string" else " or string"),
            )


def quoted(name: str) -> str:
    """Return ``name`` as a quoted identifier of standard SQL (PostgreSQL, DuckDB, DataFusion)."""
    return '"' + name.replace('"', '""') + '"'
