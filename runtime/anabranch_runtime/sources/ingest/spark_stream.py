"""A stream from any streaming source of Spark's, by its format and options.

What a registration's expressions become has been worked out when it was registered, and is part of
its record (``contract.connectors.spark_source``). Spark is only given text that was rendered there.
What the source needs is checked again whenever it is opened.

Messages that are no such object as their stream declares are invalid, and so are rows with a value
that its column can't hold or an expression that fails: ``evaluated`` separates them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.policy import AccessPolicy
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
#: Size of an ingest batch where the source's options set none.
FILE_BYTES, OFFSETS = 64 << 20, 1_000_000
#: Characters of an error of Spark's that are handed on.
LONGEST_REASON = 500
#: Spark's prefix of the message that matters.
_WRAPPINGS = (
    re.compile(r"^.*?terminated with exception: "),
    re.compile(r"^.*?An error occurred while calling \S+ : [\w.$]*(?:Exception|Error): "),
    re.compile(r"^.*?Lost task [^:]*\(executor [^)]*\): [\w.$]*(?:Exception|Error): "),
)


def spark_rows(
    session: SparkSession, record: StreamRecord, access: AccessPolicy
) -> tuple[DataFrame, Evaluation]:
    """The source as a streaming frame, and how tasks make rows of the stream of it. The frame's
    last column is the file that a row is of (``links.FILE``) where the source has files.

    Raises:
        SourceError: Spark can't read such a source: an unknown format, a missing option or path,
            an expression that means nothing.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return _rows(session, record, access)
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
    """The text of an error of Spark's without its stack: the message and the cause behind it."""
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
    """Whether the source of a stream is files that Spark reads."""
    return record.source.format in (*SPARK_FILES, "text")


def source_name(record: StreamRecord) -> str:
    """The name under which Spark keeps the source's offsets: another if it is another source.

    Another also once the stream has been registered again. For Spark may or may not remember the
    offsets of a source that comes back: it does unless two batches were committed without it.
    """
    source = record.source
    made_of = repr((source.format, source.path, sorted(source.options.items())))
    made_of += record.registration
    return f"{record.name}_{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"


def refused(record: StreamRecord, cause: StructuredError) -> SourceError:
    """The error of ``record``'s source by the check of its registration, so that it is not read."""
    return SourceError(
        cause.code,
        cause.detail,
        field=f"streams.{record.name}.{cause.field or 'source'}",
        remedy=cause.remedy,
    )


def _path(record: StreamRecord, access: AccessPolicy) -> str | None:
    """The path that Spark is given: as registered, for Spark knows files by it; resolved where it
    has ``..`` in it, which Spark takes away before links are followed.

    Raises:
        AccessError: the source needs a path or option that is not allowed.
    """
    source = record.source
    found = check_source_access(source.format, source.path, source.options, access, resolve)
    if source.path is None or found is None or ".." not in source.path.split("/"):
        return source.path
    return f"file://{found}"


def _rows(
    session: SparkSession, record: StreamRecord, access: AccessPolicy
) -> tuple[DataFrame, Evaluation]:
    path = _path(record, access)
    assert record.reading is not None
    source = from_json(record.reading)
    options = format_options(source_options(record))
    reader = session.readStream.format(record.source.format).options(**options)
    if record.source.format in WITH_CORRUPT:
        # A record that does not fit is kept; where there is a header, it must name the columns.
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
