"""The process that reads one table, or runs one statement over tables, and ends.

Standard input and output carry lines of JSON, then the rows as an Arrow IPC stream:

1. in: the limits, and ``sql`` or null.
2. with SQL, out: ``{"tables": [names]}``; in: ``batch`` and ``specs``, by names of tables.
3. out: ``{"ready": …}`` and the stream, or ``{"problem": …}``. A stream without its end marker is
    incomplete.

A statement can't reach files, the network, settings or Python's variables: its tables are read
into memory before, by statements of ours, and then access is locked. The operating system limits
the process's memory and processor time, and that it can't write files at all.
"""

from __future__ import annotations

import base64
import json
import os
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa

from anabranch_contract.connectors.postgres.catalog import quoted
from anabranch_service.tables.current import (
    NO_ROWS,
    TableKind,
    TableSpec,
    schema_of,
    table_sql,
    typed_schema,
)
from anabranch_service.tables.files import ResultFiles, TableError, replaced
from anabranch_service.tables.statement import CATALOG, SCHEMA, tables_of

#: Rows of a record batch; attempts to list files that are being replaced, and seconds between
#: attempts.
ROWS, ATTEMPTS, PAUSE = 1 << 16, 40, 0.05
#: Rows per record batch of an unlimited result, which is sent as fast as its client reads it.
STREAMED = 1 << 13
#: Bytes allowed beyond DuckDB's memory limit, for libraries, stacks of threads, and rows to be
#: written.
_BESIDE = 3 << 30
Config = dict[str, str | bool | int | float | list[str]]
#: Settings of a DuckDB connection: no extensions or Python variables, no files on disk.
_CLOSED: Config = {
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "temp_directory": "",
    # By default a path in the home folder, which statements could read by current_setting.
    "secret_directory": "none",
    "threads": "2",
}


def main() -> None:
    """Serve the request on standard input."""
    source, target = sys.stdin, sys.stdout.buffer
    request = json.loads(source.readline())
    try:
        _limit(request)
        if request["sql"] is None:
            _one_table(request, TableSpec(**_spec(request["table"])), target)
        else:
            _run_statement(request, source, target)
    except (TableError, duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        _say(target, {"problem": _problem_of(error)})


def _limit(request: Mapping[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    most = int(request["memory"]) + _BESIDE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    if request["sql"] is not None:
        seconds = 4 * int(request["seconds"]) + 4
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def _spec(document: Mapping[str, Any]) -> dict[str, Any]:
    pairs = {name: tuple((n, t) for n, t in document[name]) for name in ("columns", "changed")}
    kind, identity = TableKind(document["kind"]), tuple(document["identity"])
    return {**document, **pairs, "kind": kind, "identity": identity}


def _one_table(request: Mapping[str, Any], spec: TableSpec, target: IO[bytes]) -> None:
    """Write the rows of one table as they are read."""
    with duckdb.connect(":memory:", config=_memory(request)) as connection:
        listing = listed(Path(request["results"]), spec.run)
        schema, limit = typed_schema(spec.shown), request["limit"]
        pieces = [] if limit == 0 else listing.pieces(spec.after, spec.upto)
        rows: Iterator[pa.RecordBatch] = iter(())
        if pieces:
            sql = table_sql(spec, pieces) + ("" if limit is None else f" LIMIT {int(limit)}")
            rows = _reader(connection, sql, ROWS)
        first = next(rows, None)
        _say(target, {"ready": True})
        noted = schema.with_metadata(_notes(request, spec.run))
        with pa.ipc.new_stream(target, noted) as writer:
            while first is not None:
                writer.write_batch(_cast(first, noted))
                first = next(rows, None)
            if not ResultFiles.of(Path(request["results"]), spec.run).marks >= listing.marks:
                # A reader knows from the missing end marker that rows may be missing.
                target.flush()
                os._exit(3)
        target.flush()


def _run_statement(request: Mapping[str, Any], source: IO[str], target: IO[bytes]) -> None:
    sql, limit = str(request["sql"]), request["limit"]
    _say(target, {"tables": tables_of(tree_of(sql))})
    answer = json.loads(source.readline())
    request = {**request, "batch": answer["batch"]}
    specs = answer["specs"]
    with duckdb.connect(":memory:", config=_memory(request)) as connection:
        connection.execute(f"ATTACH ':memory:' AS {CATALOG}")
        connection.execute(f"CREATE SCHEMA {CATALOG}.{SCHEMA}")
        connection.execute(f"USE {CATALOG}.{SCHEMA}")
        connection.execute("SET TimeZone = 'UTC'")
        for name, one in specs.items():
            if "content" in one:
                sent = pa.ipc.open_stream(base64.b64decode(one["content"])).read_all()
                _make(connection, name, sent)
                continue
            spec = TableSpec(**_spec(one))
            if limit == NO_ROWS:
                _empty(connection, name, spec)
            else:
                _load(connection, Path(request["results"]), name, spec)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        if limit == NO_ROWS:
            # Creating a relation binds the statement without executing it.
            bound = connection.sql(sql)
            found = bound.limit(0).to_arrow_table().rename_columns(bound.columns)
            _say(target, {"ready": True, "truncated": False})
            with pa.ipc.new_stream(target, found.schema):
                pass
            return
        if limit is None:
            # A relation returns rows as they are found, whereas a cursor first computes all of
            # them.
            _stream(connection.sql(sql).to_arrow_reader(STREAMED), request, target)
            return
        reader = _reader(connection, sql, min(ROWS, limit + 1))
        found, rows = [], 0
        for batch in reader:
            found.append(batch)
            rows += batch.num_rows
            if rows > limit:
                break
        kept = pa.Table.from_batches(found, reader.schema).slice(0, limit)
        _say(target, {"ready": True, "truncated": rows > limit})
        noted = kept.replace_schema_metadata(_notes(request, None))
        with pa.ipc.new_stream(target, noted.schema) as writer:
            writer.write_table(noted, ROWS)
        target.flush()


def _stream(reader: pa.RecordBatchReader, request: Mapping[str, Any], target: IO[bytes]) -> None:
    """Write all rows as they are found; an error after the first rows ends the process."""
    try:
        first = next(iter(reader), None)
    except OSError as error:
        full = "Out of Memory" in str(error)
        raise (duckdb.OutOfMemoryException if full else duckdb.Error)(str(error)) from None
    _say(target, {"ready": True, "truncated": False})
    noted = reader.schema.with_metadata(_notes(request, None))
    with pa.ipc.new_stream(target, noted) as writer:
        try:
            while first is not None:
                writer.write_batch(first.replace_schema_metadata(noted.metadata))
                first = next(iter(reader), None)
        except (duckdb.Error, pa.ArrowException, OSError, MemoryError):
            target.flush()
            os._exit(3)
    target.flush()


def tree_of(sql: str) -> dict[str, Any]:
    """Return DuckDB's syntax tree of a statement, or its error."""
    with duckdb.connect(":memory:", config=_CLOSED | {"enable_external_access": "false"}) as one:
        (text,) = one.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone() or ("{}",)
    found: dict[str, Any] = json.loads(text)
    return found


def _load(connection: duckdb.DuckDBPyConnection, results: Path, name: str, spec: TableSpec) -> None:
    """Read a table into memory, from files that did not change meanwhile."""
    for _ in range(ATTEMPTS):
        listing = listed(results, spec.run)
        pieces = listing.pieces(spec.after, spec.upto)
        if not pieces:
            _empty(connection, name, spec)
            return
        try:
            rows = table_sql(spec, pieces)
            connection.execute(f"CREATE OR REPLACE TABLE {quoted(name)} AS {rows}")
        except duckdb.IOException:
            time.sleep(PAUSE)
            continue
        if ResultFiles.of(results, spec.run).marks >= listing.marks:
            return
    raise replaced(spec.run)


def _empty(connection: duckdb.DuckDBPyConnection, name: str, spec: TableSpec) -> None:
    """Make a table with the columns of ``spec``, but without rows."""
    _make(connection, name, schema_of(spec.shown).empty_table())


def _make(connection: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    connection.register("anabranch_rows", rows)
    connection.execute(f"CREATE TABLE {quoted(name)} AS FROM anabranch_rows")
    connection.unregister("anabranch_rows")


def listed(results: Path, run: str) -> ResultFiles:
    """List the files of a run at a moment when none is being replaced.

    Raises:
        TableError: ``files-replaced``: there was no such moment.
    """
    for _ in range(ATTEMPTS):
        found = ResultFiles.of(results, run)
        if found.is_settled:
            return found
        time.sleep(PAUSE)
    raise replaced(str(results / run))


def _memory(request: Mapping[str, Any]) -> Config:
    return _CLOSED | {"memory_limit": f"{int(request['memory']) >> 20}MiB"}


def _notes(request: Mapping[str, Any], run: str | None) -> dict[str, str]:
    """Return metadata of the answer: the batch of its rows, and the run of the query."""
    notes = {"anabranch_batch": str(request["batch"])}
    return notes if run is None else {**notes, "anabranch_run": run}


def _reader(connection: duckdb.DuckDBPyConnection, sql: str, rows: int) -> pa.RecordBatchReader:
    reader = connection.execute(sql).to_arrow_reader(rows)
    assert reader is not None
    return reader


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Cast rows to the columns' Arrow types: DuckDB lacks durations and adds time zones."""
    arrays = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _say(target: IO[bytes], message: Mapping[str, Any]) -> None:
    target.write(json.dumps(message).encode() + b"\n")
    target.flush()


def _problem_of(error: Exception) -> dict[str, str]:
    if isinstance(error, TableError):
        return {
            "code": error.code,
            "message": error.message,
            "field": error.field,
            "remedy": error.remedy,
        }
    text = str(error).partition("\n")[0][:500] or type(error).__name__
    if isinstance(error, (duckdb.OutOfMemoryException, MemoryError)):
        return {
            "code": "too-large",
            "message": "the tables, or what the statement makes of them, exceed the memory limit",
            "field": "sql",
            "remedy": "read fewer rows or tables, or let the operator raise --sql-memory",
        }
    if isinstance(error, (duckdb.IOException, OSError)):
        return {
            "code": "files-replaced",
            "message": text,
            "field": "",
            "remedy": "try again; if it stays, check the results directory",
        }
    return {"code": "bad-sql", "message": text, "field": "sql", "remedy": "correct the statement"}


if __name__ == "__main__":
    main()
