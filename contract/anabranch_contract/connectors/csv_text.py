"""Comma-separated text: dialects, and the scanner that divides bytes into records and fields.

The scanner is a state machine over bytes. The runtime compiles it and the service interprets it, so
both divide a file alike. It reads RFC 4180, extended to what real files contain:

* A field is quoted only if its first byte is the quote; a quote elsewhere is text.
* In a quoted field a doubled quote is a quote. So is an escaped quote, and an escaped escape is the
  escape. Before any other character the escape is text.
* Records end at LF, CR LF or CR. Blank lines and comment lines are not records.
* A quoted field that is not closed, or is followed by anything but a separator or the end of the
  record, is *malformed*: its record ends with the line in which the field begins. So a stray quote
  costs one line, not the rest of the file.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from anabranch_contract.errors import StreamError

#: Kinds of fields in CSV text: plain text; quoted; quoted with escaped characters; malformed.
PLAIN, QUOTED, ESCAPED, MALFORMED = 0, 1, 2, 3
#: Maximum length of a quoted field in bytes; a longer field is treated as never closed.
LONGEST_FIELD = 1 << 26
BOM = b"\xef\xbb\xbf"
#: Number of bytes from the start of a file that are examined to detect its type.
SAMPLE = 1 << 16
#: First bytes of files that are not plain text in UTF-8, and names of their types.
_OTHERS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\x28\xb5\x2f\xfd": "compressed by zstd",
    b"PK\x03\x04": "a zip archive",
    b"PAR1": "Parquet",
}
_LF, _CR, _SPACE, _TAB = 10, 13, 32, 9


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """Dialect of CSV files: separators, quoting, header, and texts for NULL.

    Attributes:
        header: whether the first record names the columns; else columns are found by position.
        separator, quote, escape, comment: ASCII characters; empty: the dialect has none.
        null: text of an unquoted field that means NULL.
        quoted_null: whether a quoted field with the text of ``null`` is NULL as well, and so is an
            unquoted empty field.
        empty: the value of a quoted empty field.
        multiline: whether quoted fields may contain line ends.
    """

    header: bool = True
    separator: str = ","
    quote: str = '"'
    escape: str = '"'
    comment: str = ""
    null: str = ""
    quoted_null: bool = False
    empty: str = ""
    multiline: bool = True

    @property
    def codes(self) -> tuple[int, int, int, int, bool]:
        """The CSV dialect as arguments of :func:`scan`; the code of an absent character is -1."""
        characters = (self.separator, self.quote, self.escape, self.comment)
        separator, quote, escape, comment = (ord(c) if c else -1 for c in characters)
        return separator, quote, escape, comment, self.multiline

    @property
    def escapes(self) -> tuple[str, str]:
        """A regular expression and its replacement, to unescape the content of a CSV field."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        doubled = f"{quote}({quote})"
        if not self.escape or self.escape == self.quote:
            return doubled, r"\1"
        return f"{escape}([{quote}{escape}])|{doubled}", r"\1\2"

    def text(self, content: str, mark: int, *, textual: bool) -> str | None:
        """Return the value of a CSV field as text; None if the field is NULL.

        Args:
            content: the field without its quotes.
            mark: kind of the field, such as ``QUOTED``.
            textual: whether the column's type is string or binary; in columns of other types an
                empty field is NULL.
        """
        if mark == ESCAPED:
            pattern, replacement = self.escapes
            content = re.sub(pattern, replacement, content)
        quoted = mark != PLAIN
        if not content:
            content = self.empty if quoted else ""
            if not content and (not textual or (self.quoted_null and not quoted)):
                return None
        return None if content == self.null and (self.quoted_null or not quoted) else content


def scan(
    data: Any,
    at: int,
    end: int,
    final: bool,
    most: int,
    separator: int,
    quote: int,
    escape: int,
    comment: int,
    multiline: bool,
    starts: Any,
    stops: Any,
    marks: Any,
    firsts: Any,
    bounds: Any,
) -> tuple[int, int]:
    """Divide the CSV text ``data[at:end]`` into records and fields.

    Args:
        data: bytes. ``at``: the start of a record.
        final: whether the input ends at ``end``. If it does not, a record that reaches ``end`` is
            not divided, because it may continue.
        most: maximum number of records.
        separator, quote, escape, comment, multiline: ``CsvDialect.codes``.
        starts, stops, marks: receive start, stop and kind of every field's content. For the least
            lengths of these arrays see :func:`room`.
        firsts: receives the number of every record's first field, then the number of fields.
        bounds: receives start and stop of every record, without line end.

    Returns:
        The number of records, and the start of the first record that was not divided.
    """
    records = 0
    fields = 0
    firsts[0] = 0
    while at < end and records < most:
        look = at
        while look < end and (
            (data[look] == _SPACE and separator != _SPACE)
            or (data[look] == _TAB and separator != _TAB)
        ):
            look += 1
        if look < end and data[at] == comment:
            while look < end and data[look] != _LF and data[look] != _CR:
                look += 1
        elif look < end and data[look] != _LF and data[look] != _CR:
            look = -1
        if look >= 0:
            # A blank line or a comment is not a record.
            if look == end and not final:
                break
            at = min(look + 1, end)
            continue
        begin = at
        complete = True
        while True:
            start = at
            first = at
            mark = PLAIN
            if at < end and data[at] == quote:
                mark = QUOTED
                at += 1
                start = at
                limit = min(end, first + LONGEST_FIELD)
                closed = False
                while at < limit:
                    if (
                        data[at] == escape
                        and escape != quote
                        and at + 1 < limit
                        and (data[at + 1] == quote or data[at + 1] == escape)
                    ) or (data[at] == quote and at + 1 < limit and data[at + 1] == quote):
                        mark = ESCAPED
                        at += 2
                    elif data[at] == quote:
                        closed = True
                        break
                    elif not multiline and (data[at] == _LF or data[at] == _CR):
                        break
                    else:
                        at += 1
                stop = at
                if at >= end and not final and end - first < LONGEST_FIELD:
                    complete = False
                    break
                if closed:
                    at += 1
                    if at < end:
                        closed = data[at] == separator or data[at] == _LF or data[at] == _CR
                if not closed:
                    mark = MALFORMED
                    start = first
                    at = first
                    while at < end and data[at] != _LF and data[at] != _CR:
                        at += 1
                    stop = at
            else:
                while at < end and data[at] != separator and data[at] != _LF and data[at] != _CR:
                    at += 1
                stop = at
            starts[fields] = start
            stops[fields] = stop
            marks[fields] = mark
            fields += 1
            if mark == MALFORMED or at >= end or data[at] != separator:
                break
            at += 1
        if not complete or (at >= end and not final):
            at = begin
            break
        bounds[2 * records] = begin
        bounds[2 * records + 1] = at
        if at < end:
            at += 2 if data[at] == _CR and at + 1 < end and data[at + 1] == _LF else 1
        records += 1
        firsts[records] = fields
    return records, at


def room(data: bytes, separator: int) -> tuple[int, int]:
    """Return upper bounds for the number of CSV records, and of their fields, in ``data``."""
    lines = data.count(b"\n") + data.count(b"\r") + 1
    return lines, lines + data.count(bytes([separator]))


def other_than_utf8(head: bytes) -> str | None:
    """Return the name of the type of a file that is not text in UTF-8, by its first bytes ``head``;
    None if it may be UTF-8. A file with a quarter of zero bytes is not a text.

    >>> other_than_utf8("id,s".encode("utf-16-le")), other_than_utf8(b"id,s")
    ('UTF-16, or no text', None)
    """
    named = next((name for sign, name in _OTHERS.items() if head.startswith(sign)), None)
    if named is None and head and head.count(b"\0") * 4 >= len(head):
        return "UTF-16, or no text"
    return named


@dataclass(frozen=True, slots=True)
class Record:
    """A CSV record: its bytes, and the content and kind of each field."""

    raw: bytes
    fields: tuple[tuple[bytes, int], ...]

    @property
    def malformed(self) -> bool:
        """Whether a field of the CSV record is malformed."""
        return any(mark == MALFORMED for _, mark in self.fields)


def records(
    data: bytes, dialect: CsvDialect, most: int | None = None, *, final: bool = True
) -> Iterator[Record]:
    """Yield the first ``most`` CSV records of ``data`` (None: all)."""
    codes = dialect.codes
    lines, fields = room(data, codes[0])
    most = lines if most is None else min(most, lines)
    starts, stops, marks = (array("q", bytes(8 * fields)) for _ in range(3))
    firsts, bounds = array("q", bytes(8 * (most + 1))), array("q", bytes(16 * most))
    count, _ = scan(data, 0, len(data), final, most, *codes, starts, stops, marks, firsts, bounds)
    for number, (low, high) in enumerate(pairwise(firsts[: count + 1])):
        found = ((data[starts[i] : stops[i]], marks[i]) for i in range(low, high))
        yield Record(data[bounds[2 * number] : bounds[2 * number + 1]], tuple(found))


def header_of(record: Record, dialect: CsvDialect) -> list[str]:
    """Return the column names in the header record of a CSV file.

    Raises:
        ValueError: the record is malformed or not in UTF-8.
    """
    if record.malformed:
        raise ValueError("a quote in the header is not closed")
    return [dialect.text(c.decode(), m, textual=True) or "" for c, m in record.fields]


def positions(header: Sequence[str], columns: Sequence[str]) -> dict[str, int]:
    """Return the positions of ``columns`` in a CSV header, without columns that it lacks.

    A name matches exactly; or, if that is unambiguous, ignoring case and surrounding spaces.

    Raises:
        ValueError: a column occurs twice in the header.

    >>> positions([" ID", "b", "c"], ["c", "id", "x"])
    {'c': 2, 'id': 0}
    """
    found: dict[str, int] = {}
    for column in columns:
        places = [i for i, name in enumerate(header) if name == column]
        if not places:
            wanted = column.strip().casefold()
            places = [i for i, name in enumerate(header) if name.strip().casefold() == wanted]
        if len(places) > 1:
            raise ValueError(f"the header has column {column!r} more than once")
        if places:
            found[column] = places[0]
    return found


def csv_dialect(options: Mapping[str, str], default: CsvDialect) -> CsvDialect:
    """Return the CSV dialect described by options (Spark's names, in any case).

    Raises:
        StreamError: an option has a value that is not supported.

    >>> csv_dialect({"sep": r"\\t", "Header": "false"}, CsvDialect()).separator
    '\\t'
    """
    given = {name.lower(): (name, text) for name, text in options.items()}

    def character(name: str, default: str, *, optional: bool = True) -> str:
        option, text = given.get(name, (name, default))
        text = {"\\t": "\t", "\\\\": "\\", "\\0": "", "\0": ""}.get(text, text)
        if (not text and optional) or (len(text) == 1 and text.isascii() and text not in "\r\n"):
            return text
        raise _bad(option, f"{text[:20]!r} is not a single ASCII character")

    def flag(name: str, default: bool) -> bool:
        option, text = given.get(name, (name, str(default)))
        if text.lower() not in ("true", "false"):
            raise _bad(option, f"{text[:20]!r} is neither true nor false")
        return text.lower() == "true"

    if "sep" in given and "delimiter" in given:
        raise _bad("delimiter", "sep and delimiter are the same option")
    for name in ("encoding", "charset"):
        option, text = given.get(name, (name, "utf-8"))
        if text.lower() not in ("utf-8", "utf8"):
            raise _bad(option, f"{text[:20]!r} is not supported: files are read as UTF-8")
    found = CsvDialect(
        header=flag("header", default.header),
        separator=character(
            "delimiter" if "delimiter" in given else "sep", default.separator, optional=False
        ),
        quote=character("quote", default.quote),
        escape=character("escape", default.escape),
        comment=character("comment", default.comment),
        null=given.get("nullvalue", ("", default.null))[1],
        quoted_null=default.quoted_null,
        empty=given.get("emptyvalue", ("", default.empty))[1],
        multiline=flag("multiline", default.multiline),
    )
    signs = [c for c in (found.separator, found.quote, found.comment) if c]
    if len(set(signs)) < len(signs) or found.escape == found.separator:
        raise _bad("sep", "separator, quote, escape and comment must be different characters")
    return found


def _bad(option: str, message: str) -> StreamError:
    return StreamError(
        "bad-option",
        message,
        field=f"source.options.{option}",
        remedy="correct the option, or leave it out",
    )
