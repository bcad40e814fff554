"""Detection of missing options of a source from the beginning of its data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anabranch_contract.connectors.csv_text import CsvDialect, records
from anabranch_service.streaming.samples.infer import STRING, text_type
from anabranch_service.streaming.samples.sample import Unreadable, decoded

#: First bytes of a binary file -> its type.
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
#: Separators of CSV files, likelier ones first.
_SEPARATORS = (",", ";", "\t", "|")
#: Number of records from which a dialect is detected.
_MOST = 50


def type_of(head: bytes, place: str) -> str | None:
    """Return the type of a binary file by its first bytes; None: it may be text.

    Raises:
        Unreadable: a type that ``files`` sources do not read.
    """
    if head.startswith(b"ORC"):
        raise _other(f"{place} is an ORC file", "register it with --format orc, which Spark reads")
    if head.lstrip()[:1] == b"[":
        raise _other(f"{place} is a JSON array", "write one JSON object per line")
    return next((kind for sign, kind in _MAGIC.items() if head.startswith(sign)), None)


def _other(message: str, remedy: str) -> Unreadable:
    return Unreadable("other-type", message, field="source.options.type", remedy=remedy)


def csv_options(text: bytes, whole: bool, place: str) -> dict[str, str]:
    """Return the options of a CSV dialect that differ from the defaults.

    The separator is the one with which the most records have the same number of fields. The first
    record is no header if a field of it is empty or has another type than text.

    Raises:
        Unreadable: the text has control characters.

    >>> csv_options(b"id;price\\n1;2,5\\n", True, "a.csv")
    {'sep': ';'}
    >>> csv_options(b"1,x\\n2,y\\n", True, "a.csv")
    {'header': 'false'}
    """
    if b"\0" in text:
        raise _other(f"{place} is no text", "give a folder of Parquet, Arrow, JSON or CSV files")
    fields = {separator: _fields(text, whole, separator) for separator in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda separator: _agreement(fields[separator]))
    found = {} if best == "," else {"sep": best}
    first = next(iter(fields[best]), [])
    headed = all(first) and all(text_type([name]) == STRING for name in first)
    return found if headed or not first else {**found, "header": "false"}


def _fields(text: bytes, whole: bool, separator: str) -> list[list[str]]:
    dialect = CsvDialect(separator=separator)
    return [
        [dialect.text(decoded(c), mark, textual=True) or "" for c, mark in record.fields]
        for record in records(text, dialect, _MOST, final=whole)
        if not record.malformed
    ]


def _agreement(rows: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Return how many records have the most frequent number of fields, and that number; zeros if
    the number is 1, since no separator was found."""
    (width, count), *_ = Counter(map(len, rows)).most_common(1) or [(0, 0)]
    return (count, width) if width > 1 else (0, 0)
