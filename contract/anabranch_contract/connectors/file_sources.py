"""Options of directories of files that the runtime reads itself: sources of format ``files``, and
of Spark's ``csv`` and ``json`` if the meaning of all their options is the same as in Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.csv_text import CsvDialect, csv_dialect
from anabranch_contract.connectors.kafka_sources import MessagePayload, is_own_topic, kafka_options
from anabranch_contract.connectors.sources import (
    FILES,
    REDIS_STREAM,
    FileOrder,
    FileType,
    OnChangedFile,
    OnLoss,
    SourcePayload,
    bad_option,
    check_known,
    choice,
    redis_stream_options,
)
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.types import NESTED, UNORDERED, DataType, TypeKind

#: Options that choose a policy for bad or changed files of a directory.
POLICIES = ("on_bad_file", "on_changed_file")
#: Spark's default CSV dialect: columns by position, no line ends in quoted fields.
SPARK_CSV = CsvDialect(header=False, escape="\\", quoted_null=True, multiline=False)
_CSV = ("header", "sep", "delimiter", "quote", "escape", "nullValue", "emptyValue", "comment")
_ENCODING = ("encoding", "charset")
_DIALECT = frozenset(name.lower() for name in (*_CSV, *_ENCODING, "multiLine"))
#: Option of Spark -> its values that have the same effect as omitting it.
_NEUTRAL = {
    "mode": ("permissive",),
    "ignoreleadingwhitespace": ("false",),
    "ignoretrailingwhitespace": ("false",),
    "enforceschema": ("true", "false"),
    "multiline": ("false",),
    "encoding": ("utf-8", "utf8"),
    "charset": ("utf-8", "utf8"),
}
_CSV_ONLY = frozenset({"ignoreleadingwhitespace", "ignoretrailingwhitespace", "enforceschema"})


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The files of a directory that are read, and their format.

    Attributes:
        pattern: a shell pattern for file names.
        on_bad_file: policy for a file that can't be read.
        on_changed_file: policy for a file that changes after it was read.
        dialect: dialect of CSV files; None: files of another type.
        order: reading order of new files found by one listing of the directory.
        spark: the registered format if it is Spark's (``csv``, ``json``); empty: ``files``.
    """

    type: FileType = FileType.PARQUET
    pattern: str = "*"
    on_bad_file: OnLoss = OnLoss.STOP
    on_changed_file: OnChangedFile = OnChangedFile.WARN
    dialect: CsvDialect | None = None
    order: FileOrder = FileOrder.MODIFIED
    spark: str = ""


def file_options(path: str | None, options: Mapping[str, str]) -> FileOptions:
    """Parse the options of a ``files`` source that reads the directory ``path``.

    Raises:
        StreamError: the path is missing, or an option or its value is unknown.

    >>> file_options("/data/orders", {"type": "json", "pattern": "*.jsonl"}).pattern
    '*.jsonl'
    """
    if not path:
        raise StreamError(
            "incomplete-source",
            "a files source needs the path of a directory",
            field="source.path",
            remedy="give the path on the machine of the runtime",
        )
    type = choice(FileType, options, "type", FileType.PARQUET)
    names = ("type", "pattern", "order", *POLICIES)
    dialect = None
    if type is FileType.CSV:
        check_known(options, (*names, *_CSV, *_ENCODING), FILES)
        given = {k: v for k, v in options.items() if k not in names}
        dialect = csv_dialect(given, CsvDialect())
    elif type is FileType.JSON:
        check_known(options, (*names, *_ENCODING), FILES)
        csv_dialect({k: v for k, v in options.items() if k in _ENCODING}, CsvDialect())
    else:
        check_known(options, names, FILES)
    return FileOptions(
        type,
        options.get("pattern", "*") or "*",
        choice(OnLoss, options, "on_bad_file", OnLoss.STOP),
        choice(OnChangedFile, options, "on_changed_file", OnChangedFile.WARN),
        dialect,
        choice(FileOrder, options, "order", FileOrder.MODIFIED),
    )


def is_own(format: str, path: str | None, options: Mapping[str, str]) -> bool:
    """Whether a source is a directory of files for the runtime itself (:func:`own_files`)."""
    sparks = format not in ("csv", "json") or not path
    return format == FILES or not (sparks or sparks_option(format, path or "", options))


def is_json(format: str, path: str | None, options: Mapping[str, str]) -> bool:
    """Whether the runtime, without Spark, reads a source's rows from JSON objects."""
    if format == REDIS_STREAM:
        return redis_stream_options(options).payload is SourcePayload.JSON
    if is_own_topic(format, options):
        return kafka_options(options).payload is MessagePayload.JSON
    found = own_files(format, path, options) if is_own(format, path, options) else None
    return found is not None and found.type is FileType.JSON


def check_nested(
    columns: Iterable[tuple[str, DataType]],
    format: str,
    path: str | None,
    options: Mapping[str, str],
) -> None:
    """Reject columns of types that the source's format can't have: nested types in CSV and other
    texts, maps without text keys in JSON, variants in formats other than JSON.

    Raises:
        StreamError: ``unsupported-type``.
    """
    nested = {name: kind for name, kind in columns if kind.kind in UNORDERED}
    if not nested:
        return
    variants = {name: kind for name, kind in nested.items() if kind.has(TypeKind.VARIANT)}
    inside = {name: kind for name, kind in variants.items() if kind.kind in NESTED}
    if inside or (variants and not is_json(format, path, options)):
        nested, where = inside or variants, "a source of JSON" if inside else "this source"
        remedy = (
            "declare the whole column as variant"
            if inside
            else ("declare it as string, and write parse_json(column)")
        )
    elif is_json(format, path, options):
        nested = {name: kind for name, kind in nested.items() if not kind.named}
        where, remedy = "JSON objects, whose names are texts", "declare map<string, ...>"
    elif (
        format in ("csv", "text", "xml")
        or (
            format == REDIS_STREAM and redis_stream_options(options).payload is SourcePayload.FIELDS
        )
        or (format == FILES and file_options(path, options).type is FileType.CSV)
    ):
        where, remedy = "texts", "declare it as string, and use split() or get_json_object()"
    else:
        return
    for name, kind in nested.items():
        raise StreamError(
            "unsupported-type",
            f"a column of type {kind} is not read from {where}",
            field=f"columns.{name}",
            remedy=remedy,
        )


def own_files(format: str, path: str | None, options: Mapping[str, str]) -> FileOptions | None:
    """Parse the options of a directory of files that the runtime may read itself.

    Returns:
        The options; None if the source is not a directory, or if Spark reads it
        (:func:`sparks_option`).

    Raises:
        StreamError: an option or its value is unknown.
    """
    if format == FILES:
        return file_options(path, options)
    if format not in ("csv", "json") or not path:
        return None
    cause = sparks_option(format, path, options)
    if cause is not None:
        for name in POLICIES:
            if name in options:
                raise bad_option(
                    name, f"Spark reads this source, because of its {cause}", f"leave out {name}"
                )
        return None
    given = {name.lower(): text for name, text in options.items()}
    return FileOptions(
        FileType(format),
        given.get("pathglobfilter", "*") or "*",
        choice(OnLoss, options, "on_bad_file", OnLoss.STOP),
        choice(OnChangedFile, options, "on_changed_file", OnChangedFile.WARN),
        csv_dialect(options, SPARK_CSV) if format == "csv" else None,
        spark=format,
    )


def sparks_option(format: str, path: str, options: Mapping[str, str]) -> str | None:
    """Return the first option (or ``path``) of a ``csv`` or ``json`` source that only Spark can
    handle; None if the runtime reads the source itself.

    >>> sparks_option("csv", "/data", {"header": "true", "dateFormat": "dd.MM.yyyy"})
    'option dateFormat'
    >>> sparks_option("json", "/data", {"mode": "PERMISSIVE"})
    """
    if parse_path(path, "source.path").scheme != "file":
        return "path"
    for name, text in options.items():
        lowered = name.lower()
        if name in POLICIES:
            continue
        if lowered == "pathglobfilter":
            known = not set(text) & set("[]{}\\^")
        elif format == "csv" and lowered in _DIALECT:
            known = _is_dialect(name, text)
        else:
            known = text.lower() in _NEUTRAL.get(lowered, ()) and (
                format == "csv" or lowered not in _CSV_ONLY
            )
        if not known:
            return f"option {name}"
    return None


def _is_dialect(name: str, text: str) -> bool:
    try:
        csv_dialect({name: text}, SPARK_CSV)
    except StreamError:
        return False
    return True
