"""Files of a directory, or one, on this machine and in object storage: a few rows of the first."""

from __future__ import annotations

import csv
import fnmatch
import io
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
from pyarrow import fs

from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.policy import AccessPolicy
from anabranch_contract.connectors.sources import FILES, RECORDED, FileType, file_options
from anabranch_service.registry.records import SourceRecord
from anabranch_service.streaming.samples.fit import Form
from anabranch_service.streaming.samples.sample import (
    BYTES,
    SECONDS,
    Sample,
    Unreadable,
    decoded,
    object_of,
    scalars,
)

#: Formats of Spark's whose files can be read here.
SPARK_FILES = ("parquet", "orc", "json", "csv", "text")
#: Schemes of object storage that can be opened here.
_OBJECTS = ("s3", "s3a", "gs")
#: Files that are counted, at most.
_MOST = 10_000
#: What is read at once of a Parquet file. Of Arrow and ORC whole parts are read: no large files.
_PAGE, _LARGE = 1 << 16, 1 << 28


def sample_files(
    source: SourceRecord, columns: Sequence[str], most: int, policy: AccessPolicy
) -> Sample:
    """``most`` rows of the first files, as :func:`take`."""
    path = source.path or ""
    place = parse_path(path, "source.path")
    kind, pattern = source.format, "*"
    if source.format == FILES:
        options = file_options(path, source.options)
        kind, pattern = options.type.value, options.pattern
    elif source.format == RECORDED:
        kind = FileType.PARQUET.value
    else:
        pattern = _option(source, "pathGlobFilter") or "*"
    sample = Sample(_FORMS[kind], unit="files")
    expressions = [
        n for n in source.options if n.startswith("column.") or n in ("schema", "payload")
    ]
    if expressions:
        sample.limits.append(
            f"rows were not looked at, since only the runtime evaluates {', '.join(expressions)}"
            " of source.options"
        )
    try:
        files, base = _opened(place.scheme, place.host, place.path)
        names = _listed(files, base, source.format == RECORDED, pattern)
        if place.scheme == "file":
            inside = [n for n in names if policy.permits_path(os.path.realpath(n))]
            if len(inside) < len(names):
                sample.limits.append(
                    f"{len(names) - len(inside)} links lead out of what may be read: passed over"
                )
            names = inside
        sample.found = len(names)
        if expressions:
            sample.looked_at = False
            return sample
        for name in names:
            if len(sample.rows) >= most:
                break
            sample.places.append(name)
            found = _READERS[kind](files, name, source, columns)
            sample.rows += itertools.islice(found, most - len(sample.rows))
    except _NotHere as cause:
        return Sample(looked_at=False, unit="files", limits=[str(cause)])
    except (OSError, pa.ArrowException, ValueError, KeyError, csv.Error) as cause:
        raise _unreadable(sample.places[-1] if sample.places else path, cause) from cause
    return sample


class _NotHere(Exception):
    """A place that the service can't open."""


def _opened(scheme: str, host: str, path: str) -> tuple[fs.FileSystem, str]:
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
    """The files that would be read, in order of their times."""
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


def _parquet(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    # Pages are read as rows are asked for, not whole columns of a row group.
    with files.open_input_file(name) as file:
        parquet = pq.ParquetFile(file, buffer_size=_PAGE, pre_buffer=False)
        wanted = _present(parquet.schema_arrow.names, columns, source)
        for batch in parquet.iter_batches(batch_size=64, columns=wanted, use_threads=False):
            yield from scalars(batch, columns)


def _arrow(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    with files.open_input_file(name) as file:
        _check_size(file, name)
        reader = pa.ipc.open_file(file)
        _present(reader.schema.names, columns, source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            batch.validate(full=True)
            yield from scalars(batch, columns)


def _orc(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    with files.open_input_file(name) as file:
        _check_size(file, name)
        stripes = orc.ORCFile(file)
        wanted = _present(stripes.schema.names, columns, source)
        for number in range(stripes.nstripes):
            yield from scalars(stripes.read_stripe(number, columns=wanted), columns)


def _check_size(file: pa.NativeFile, name: str) -> None:
    if file.size() > _LARGE:
        raise _NotHere(f"{name} is larger than the service reads ({_LARGE >> 20} MiB)")


def _present(there: Sequence[str], columns: Sequence[str], source: SourceRecord) -> list[str]:
    """The columns that a file has; one of the runtime's own must have all of them."""
    missing = [c for c in columns if c not in there]
    if missing and source.format in (FILES, RECORDED):
        raise Unreadable(
            "missing-column",
            f"the file has no column {missing[0]!r}; it has {', '.join(there[:30])}",
            field=f"columns.{missing[0]}",
            remedy="leave the column out, or write files that have it",
        )
    return [c for c in columns if c in there]


def _json(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any] | str]:
    return (object_of(line) for line in _lines(files, name))


def _csv(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any] | str]:
    text = io.StringIO("\n".join(decoded(line) for line in _lines(files, name)))
    separator = _option(source, "sep") or _option(source, "delimiter") or ","
    rows = csv.reader(text, delimiter=separator, quotechar=_option(source, "quote") or '"')
    if (_option(source, "header") or "").lower() == "true":
        next(rows, None)
    nothing = _option(source, "nullValue") or ""
    for row in rows:
        # Spark takes columns by their places, whatever the header says.
        yield {c: None if v == nothing else v for c, v in zip(columns, row, strict=False)}


def _text(
    files: fs.FileSystem, name: str, source: SourceRecord, columns: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    return ({columns[0]: decoded(line)} for line in _lines(files, name))


def _lines(files: fs.FileSystem, name: str) -> Iterator[bytes]:
    """The whole lines in the first bytes of a file."""
    with files.open_input_stream(name) as stream:
        content: bytes = stream.read(BYTES)
    lines = content.split(b"\n")
    if len(content) == BYTES and len(lines) > 1:
        lines.pop()
    return (line.rstrip(b"\r") for line in lines if line.strip())


def _option(source: SourceRecord, name: str) -> str | None:
    """An option of Spark's, whose names have no case."""
    return next((v for n, v in source.options.items() if n.lower() == name.lower()), None)


_READERS = {
    "parquet": _parquet,
    "arrow": _arrow,
    "orc": _orc,
    "json": _json,
    "csv": _csv,
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
        remedy="the path is one of the machine that the runtime is on; make it, or let it be read"
        if code == "missing-path"
        else "write a whole file of the format that the source names, and let it be read",
    )
