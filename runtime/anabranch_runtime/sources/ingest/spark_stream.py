"""Opening of any of Spark's streaming sources, by its format and options.

A stream's expressions are compiled when it is registered and kept in its record
(``contract.connectors.spark_source``). Spark gets only SQL text generated from them. The access
policy is checked again whenever the source is opened.

Messages that do not fit their stream's declaration are invalid, and so are rows with a value that
does not fit its column or an expression that fails: ``evaluate`` separates them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.connectors.sources import SPARK_FILES
from anabranch_contract.connectors.spark_source import (
    CORRUPT,
    WITH_CORRUPT,
    format_options,
    from_json,
)
from anabranch_contract.connectors.spark_text import quoted
from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.ingest.evaluate import Evaluation
from anabranch_runtime.sources.ingest.links import FILE
from anabranch_runtime.sources.permitted import masked, resolve, source_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LIMITS = {"maxfilespertrigger", "maxbytespertrigger", "maxoffsetspertrigger"}
#: Default size of an ingest batch: bytes of files, or number of offsets.
FILE_BYTES, OFFSETS = 64 << 20, 1_000_000
#: Maximum number of characters reported from Spark's error messages.
LONGEST_REASON = 500
#: Beginnings of Spark's error messages that are cut off.
_WRAPPINGS = (
    re.compile(r"^.*?terminated with exception: "),
    re.compile(r"^.*?An error occurred while calling \S+ : [\w.$]*(?:Exception|Error): "),
    re.compile(r"^.*?Lost task [^:]*\(executor [^)]*\): [\w.$]*(?:Exception|Error): "),
)


def spark_rows(
    session: SparkSession, record: StreamRecord, access: AccessPolicy
) -> tuple[DataFrame, Evaluation]:
    """Open the source as a streaming DataFrame; return it with the evaluator of the stream's
    columns. For a source of files the frame's last column is each row's file (``links.FILE``).

    Raises:
        SourceError: Spark can't read the source: unknown format, missing option or path, invalid
            expression.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return _streaming_rows(session, record, access)
    except PlannerError as cause:
        raise refused(record, cause) from cause
    except (PySparkException, Py4JJavaError, ValueError) as cause:
        raise SourceError(
            "bad-source",
            f"Spark can't read format {record.source.format!r}: {reason(cause)}",
            field=f"streams.{record.name}.source",
            remedy="give a path that the runtime sees, or make the directory: it is tried again"
            if "PATH_NOT_FOUND" in str(cause)
            else "correct the source's format, path and options; a connector's package must be"
            " on Spark's class path",
        ) from cause


def reason(error: BaseException) -> str:
    """Return the text of Spark's error without its stack trace: the message and its cause."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("at ", "... ", "Caused by:"))]
    text = " ".join(said[:2])
    for prefix in _WRAPPINGS:
        text = prefix.sub("", text)
    root = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    if root and root[-1].partition(": ")[2] not in text:
        text = f"{text[: LONGEST_REASON // 2]} ({root[-1]})"
    return masked(text)[:LONGEST_REASON]


def has_files(record: StreamRecord) -> bool:
    """Whether the stream is read from files by Spark."""
    return record.source.format in (*SPARK_FILES, "text")


def source_name(record: StreamRecord) -> str:
    """Return the name under which Spark keeps the source's offsets; it differs between sources.

    It also differs between registrations of a stream: Spark keeps the offsets of a removed
    source only until two batches have been committed without it.
    """
    source = record.source
    options = source.options
    if source.format == POSTGRES:
        # The server's address and the policy are left out, since they may change. Another table is
        # recognised by the ids of the server's data and of the table (``postgres.position``).
        options = {"table": options.get("table", "")}
    made_of = repr((source.format, source.path, sorted(options.items())))
    made_of += record.registration
    return f"{record.name}_{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def refused(record: StreamRecord, cause: StructuredError) -> SourceError:
    """Return the error for the source of ``record`` if it fails the check of registrations."""
    return SourceError(
        cause.code,
        cause.detail,
        field=f"streams.{record.name}.{cause.field or 'source'}",
        remedy=cause.remedy,
    )


def _path(record: StreamRecord, access: AccessPolicy) -> str | None:
    """Return the path that Spark gets: the registered path, as Spark identifies files by it; with
    ``..`` in it, the resolved path, as Spark would remove ``..`` before following links.

    Raises:
        AccessError: the source has a path or option that is not allowed.
    """
    source = record.source
    found = check_source_access(source.format, source.path, source.options, access, resolve)
    if source.path is None or found is None or ".." not in source.path.split("/"):
        return source.path
    return f"file://{found}"


def _streaming_rows(
    session: SparkSession, record: StreamRecord, access: AccessPolicy
) -> tuple[DataFrame, Evaluation]:
    path = _path(record, access)
    assert record.reading is not None
    source = from_json(record.reading)
    options = format_options(source_options(record))
    reader = session.readStream.format(record.source.format).options(**options)
    if record.source.format in WITH_CORRUPT:
        # Records that do not fit the schema are kept, and a CSV header must name the columns.
        reader = reader.option("columnNameOfCorruptRecord", CORRUPT)
        reader = reader.option("enforceSchema", "false")
    if source.schema is not None:
        reader = reader.schema(source.schema)
    from_files = has_files(record)
    if not _LIMITS & {key.lower() for key in options}:
        if from_files:
            reader = reader.option("maxBytesPerTrigger", FILE_BYTES)
        elif record.source.format == "kafka":
            reader = reader.option("maxOffsetsPerTrigger", OFFSETS)
    frame = reader.name(source_name(record)).load(path)
    frame = frame.selectExpr(
        "*",
        *([] if source.parsed is None else [source.parsed]),
        *([f"_metadata.file_path AS {quoted(FILE)}"] if from_files else []),
    )
    selected = [*(text for _, text in source.inputs), source.invalid, source.arrived]
    names = [f"c{i}" for i in range(len(selected))]
    if from_files:
        selected.append(quoted(FILE))
        names.append(FILE)
    frame = frame.selectExpr(*(f"{t} AS {quoted(n)}" for t, n in zip(selected, names, strict=True)))
    inputs = tuple(column for column, _ in source.inputs)
    return frame, Evaluation(inputs, tuple(c.name for c in record.columns), source.columns)
