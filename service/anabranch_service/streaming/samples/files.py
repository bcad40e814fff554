"""Sampling of files on this machine and in object storage: a few rows of the oldest files."""

from __future__ import annotations

import bz2
import fnmatch
import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyarrow import fs

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.csv_text import (
    BOM,
    SAMPLE,
    CsvDialect,
    Record,
    csv_dialect,
    header_of,
    other_than_utf8,
    positions,
    records,
)
from anabranch_contract.connectors.file_sources import SPARK_CSV, is_own, own_files
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import FILES, RECORDED, FileType
from anabranch_contract.errors import StreamError
from anabranch_contract.protocol.registered import SourceRecord
from anabranch_service.streaming.samples.detect import csv_options, type_of
from anabranch_service.streaming.samples.fit import Field, Form
from anabranch_service.streaming.samples.sample import (
    BYTES,
    SECONDS,
    Row,
    Sample,
    Unreadable,
    Wanted,
    declared_by,
    decoded,
    object_of,
    scalars,
)

#: Spark's file formats that the service can read.
SPARK_FILES = ("parquet", "orc", "json", "csv", "text")
#: URL schemes of object storage that the service can open.
_OBJECTS = ("s3", "s3a", "gs")
#: Maximum number of records of a CSV file that are parsed.
MOST_RECORDS = 1000
#: First bytes of compressed text -> its decompressor.
_UNPACK: Mapping[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
}
#: Kind of table -> the folder of its log, and the end of names in it.
_TABLES = {"Delta": ("_delta_log", ".json"), "Iceberg": ("metadata", ".metadata.json")}
#: Maximum number of files of a source that are counted.
_MOST = 10_000
#: Read size of Parquet files, and maximum size of Arrow and ORC files (whose batches and stripes
#: are read as a whole), in bytes.
_PAGE, _LARGE = 1 << 16, 1 << 28
#: Number of first bytes that identify the type of a binary file.
_MAGIC = 8


def sample_files(source: SourceRecord, columns: Wanted, most: int, policy: AccessPolicy) -> Sample:
    """Read at most ``most`` rows of the oldest files of a source; see :func:`take`."""
    path = source.path or ""
    place = parse_path(path, "source.path")
    kind, pattern = source.format, "*"
    options = own_files(source.format, source.path, source.options)
    if options is not None:
        kind, pattern = options.type.value, options.pattern
    elif source.format == RECORDED:
        kind = FileType.PARQUET.value
    else:
        named = (v for n, v in source.options.items() if n.lower() == "pathglobfilter")
        pattern = next(named, "") or "*"
    unknown = columns is None and source.format == FILES and "type" not in source.options
    sample = Sample(_FORMS[kind], unit="files")
    expressions = [
        n for n in source.options if n.startswith("column.") or n in ("schema", "payload")
    ]
    if expressions:
        sample.limits.append(
            f"rows were not read, since only the runtime evaluates {', '.join(expressions)}"
            " of source.options"
        )
    try:
        files, base = _opened_file_system(place.scheme, place.host, place.path)
        if unknown:
            _check_no_table(files, base)
        names = _listed(files, base, source.format == RECORDED, pattern)
        if place.scheme == "file":
            inside = [n for n in names if policy.permits_path(os.path.realpath(n))]
            if len(inside) < len(names):
                sample.limits.append(
                    f"{len(names) - len(inside)} links skipped: they lead to paths not permitted"
                )
            names = inside
        sample.found = len(names)
        if expressions:
            sample.looked_at = False
            return sample
        if unknown and names:
            sample.options = detected(files, names[0])
            kind = sample.options["type"]
            sample.form = _FORMS[kind]
            given = {**source.options, **sample.options}
            source = source.model_copy(update={"options": given})
        for name in names:
            if len(sample.rows) >= most:
                break
            sample.places.append(name)
            sample.add(_READERS[kind](files, name, source, columns, sample), most, name)
    except _NotHere as cause:
        return Sample(looked_at=False, unit="files", limits=[str(cause)])
    except (OSError, pa.ArrowException, ValueError, KeyError, zlib.error) as cause:
        raise _unreadable(sample.places[-1] if sample.places else path, cause) from cause
    return sample


def _check_no_table(files: fs.FileSystem, base: str) -> None:
    """Refuse the folder of a table: some of its files may not belong to its current version.

    Raises:
        Unreadable: ``lake-table``.
    """
    for kind, (folder, ending) in _TABLES.items():
        selector = fs.FileSelector(f"{base.rstrip('/')}/{folder}", allow_not_found=True)
        if any(one.path.endswith(ending) for one in files.get_file_info(selector)):
            raise Unreadable(
                "lake-table",
                f"the folder is a {kind} table: some of its files may not be current",
                field="source.path",
                remedy=f"register it with --format {kind.lower()}, --path and its columns",
            )


class _NotHere(Exception):
    """A location that only the runtime, not the service, can open."""


def _opened_file_system(scheme: str, host: str, path: str) -> tuple[fs.FileSystem, str]:
    if scheme == "file":
        return fs.LocalFileSystem(), path
    if scheme not in _OBJECTS:
        raise _NotHere(f"the service opens no {scheme}:// (source.path): only the runtime does")
    where = f"{host}/{path.strip('/')}"
    if scheme == "gs":
        return fs.GcsFileSystem(retry_time_limit=timedelta(seconds=SECONDS)), where
    scheme, _, endpoint = os.environ.get("AWS_ENDPOINT_URL", "").rpartition("://")
    given = {"endpoint_override": endpoint, "scheme": scheme or "https"} if endpoint else {}
    retry = fs.AwsStandardS3RetryStrategy(max_attempts=1)
    files = fs.S3FileSystem(
        connect_timeout=SECONDS, request_timeout=SECONDS, retry_strategy=retry, **given
    )
    return files, where


def _listed(files: fs.FileSystem, base: str, single: bool, pattern: str) -> list[str]:
    """Return the files that the runtime would read, in order of modification time."""
    info = files.get_file_info(base)
    if info.type is fs.FileType.NotFound:
        raise FileNotFoundError(2, "no such file or directory")
    if info.type is fs.FileType.File:
        return [base]
    if single:
        raise IsADirectoryError(21, "a recording is one file, and this is a directory")
    if isinstance(files, fs.LocalFileSystem):
        with os.scandir(base) as entries:
            some = list(itertools.islice((e for e in entries if e.is_file()), _MOST))
        dated = [(e.stat().st_mtime_ns, e.path) for e in some]
    else:
        listing = files.get_file_info(fs.FileSelector(base))[:_MOST]
        dated = [(i.mtime_ns or 0, i.path) for i in listing if i.type is fs.FileType.File]
    return [path for _, path in sorted(dated) if _shown(PurePosixPath(path).name, pattern)]


def _shown(name: str, pattern: str) -> bool:
    hidden = name.startswith((".", "_")) or name.endswith((".tmp", ".partial"))
    return not hidden and fnmatch.fnmatchcase(name, pattern)


def _parquet_rows(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Mapping[str, Any]]:
    # Without pre-buffering, pages are read on demand instead of whole columns of a row group.
    with files.open_input_file(name) as file:
        parquet = pq.ParquetFile(file, buffer_size=_PAGE, pre_buffer=False)
        wanted = _present(parquet.schema_arrow, columns, source, sample)
        for batch in parquet.iter_batches(batch_size=64, columns=wanted, use_threads=False):
            yield from scalars(batch, columns)


def _arrow_file_rows(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Mapping[str, Any]]:
    with files.open_input_file(name) as file:
        _check_size(file, name)
        reader = pa.ipc.open_file(file)
        _present(reader.schema, columns, source, sample)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield from scalars(batch, columns)


def _orc_rows(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Mapping[str, Any]]:
    with files.open_input_file(name) as file:
        _check_size(file, name)
        stripes = orc.ORCFile(file)
        wanted = _present(stripes.schema, columns, source, sample)
        for number in range(stripes.nstripes):
            yield from scalars(stripes.read_stripe(number, columns=wanted), columns)


def _check_size(file: pa.NativeFile, name: str) -> None:
    if file.size() > _LARGE:
        raise _NotHere(f"{name} is larger than the service reads ({_LARGE >> 20} MiB)")


def _present(schema: pa.Schema, columns: Wanted, source: SourceRecord, sample: Sample) -> list[str]:
    """Return the stream's columns that a file has; only files that Spark reads may lack some."""
    there = schema.names
    if columns is None:
        sample.declared.append(
            {n: k for n, k in declared_by(schema).items() if there.count(n) == 1}
        )
        return [n for n in there if there.count(n) == 1]
    missing = [c for c in columns if c not in there]
    if missing and (
        source.format == RECORDED or is_own(source.format, source.path, source.options)
    ):
        raise missing_column(missing[0], there)
    return [c for c in columns if c in there]


def missing_column(column: str, there: Sequence[str]) -> Unreadable:
    """Return the error for a missing column of a source; ``there``: the columns that it has."""
    return Unreadable(
        "missing-column",
        f"the source has no column {column!r}; it has {', '.join(there[:30])}",
        field=f"columns.{column}",
        remedy="leave the column out, or write rows that have it",
    )


def _json(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Row]:
    return (object_of(line) for line in _lines(files, name))


def _csv_rows(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Row]:
    dialect = _dialect(source)
    content, whole = _start_of(files, name)
    found = records(content.removeprefix(BOM), dialect, MOST_RECORDS, final=whole)
    if columns is None and not dialect.header:
        first = next(found, None)
        if first is None:
            return
        columns = [f"column{number}" for number, _ in enumerate(first.fields, 1)]
        sample.declared.append(dict.fromkeys(columns))
        found = itertools.chain([first], found)
    places, fields = {c: i for i, c in enumerate(columns or ())}, len(columns or ())
    if dialect.header:
        first = next(found, None)
        if first is None:
            return
        header = header_of(first, dialect)
        if columns is None:
            plain = [name.strip() for name in header]
            lowered = [name.casefold() for name in plain]
            columns = [n for n, low in zip(plain, lowered, strict=True) if lowered.count(low) == 1]
            sample.declared.append(dict.fromkeys(columns))
            if len(columns) < len(header):
                sample.notes.append(f"{name}: columns with the same name are left out")
        places, fields = positions(header, columns), len(header)
        for column in columns:
            if column not in places:
                raise missing_column(column, header)
    for record in found:
        yield _row(record, dialect, places, fields)


def detected(files: fs.FileSystem, name: str) -> dict[str, str]:
    """Detect the options of a folder, type and CSV dialect, from the beginning of its first file.

    Raises:
        Unreadable: the file is of no type that ``files`` sources read.
        ValueError: the file is not text in UTF-8.
    """
    with files.open_input_stream(name, compression=None) as stream:
        kind = type_of(stream.read(_MAGIC), name)
    if kind is not None:
        return {"type": kind}
    content, whole = _start_of(files, name)
    text = content.removeprefix(BOM)
    if text.lstrip()[:1] == b"{":
        return {"type": "json"}
    return {"type": "csv", **csv_options(text, whole, name)}


def _row(record: Record, dialect: CsvDialect, places: Mapping[str, int], fields: int) -> Row:
    """Return the fields of a CSV record by column; the record's text if it is malformed."""
    if record.malformed or len(record.fields) != fields:
        return decoded(record.raw)
    try:
        record.raw.decode()
    except UnicodeDecodeError:
        return decoded(record.raw)
    given = ((c, record.fields[place]) for c, place in places.items())
    return {c: Field(content.decode(), mark, dialect) for c, (content, mark) in given}


def _dialect(source: SourceRecord) -> CsvDialect:
    """Return the CSV dialect of a source; options of Spark without an equivalent are ignored."""
    options = own_files(source.format, source.path, source.options)
    if options is not None and options.dialect is not None:
        return options.dialect
    dialect = SPARK_CSV
    for option, text in source.options.items():
        with suppress(StreamError):
            dialect = csv_dialect({option: text}, dialect)
    return dialect


def _text(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Wanted, sample: Sample
) -> Iterator[Mapping[str, Any]]:
    name_of = (columns or ("value",))[0]
    return ({name_of: decoded(line)} for line in _lines(files, name))


def _lines(files: fs.FileSystem, name: str) -> Iterator[bytes]:
    """Return the complete lines in the first :data:`BYTES` bytes of a sampled file."""
    content, whole = _start_of(files, name)
    lines = content.removeprefix(BOM).split(b"\n")
    if not whole and len(lines) > 1:
        lines.pop()
    return (line.rstrip(b"\r") for line in lines if line.strip())


def _start_of(files: fs.FileSystem, name: str) -> tuple[bytes, bool]:
    """Return the first :data:`BYTES` bytes of a text file, and whether they are the whole file.

    Raises:
        ValueError: the text is not UTF-8.
    """
    with files.open_input_stream(name, compression=None) as stream:
        content: bytes = stream.read(BYTES)
    unpack = next((u for sign, u in _UNPACK.items() if content.startswith(sign)), None)
    if unpack is not None:
        # The beginning of a compressed file can be decompressed without the rest.
        whole = len(content) < BYTES
        content = unpack().decompress(content)
        return content[:BYTES], whole and len(content) <= BYTES
    other = other_than_utf8(content[:SAMPLE])
    if other is not None:
        raise ValueError(f"it is {other}, and only UTF-8 is read")
    return content, len(content) < BYTES


_READERS = {
    "parquet": _parquet_rows,
    "arrow": _arrow_file_rows,
    "orc": _orc_rows,
    "json": _json,
    "csv": _csv_rows,
    "text": _text,
}
_FORMS = {
    "parquet": Form.TYPED,
    "arrow": Form.TYPED,
    "orc": Form.TYPED,
    "json": Form.JSON,
    "csv": Form.TEXT,
    "text": Form.TEXT,
}


def _unreadable(place: str, cause: Exception) -> Unreadable:
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    code = "missing-path" if isinstance(cause, FileNotFoundError) else "unreadable-file"
    return Unreadable(
        code,
        f"{place} can't be read: {why.splitlines()[0][:300] if why else type(cause).__name__}",
        field="source.path",
        remedy="create the path on the machine of the runtime, or permit access to it"
        if code == "missing-path"
        else "write a complete file in the source's format, and permit access to it",
    )
