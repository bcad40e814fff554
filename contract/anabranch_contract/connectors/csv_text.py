"""Comma-separated text: dialects, and the scanner that divides bytes into records and fields.

The scanner is a state machine over bytes, used by the runtime (compiled) and by the service (as it
is), so both divide a file alike. RFC 4180, with the liberties that files take:

* A field is quoted only if its first byte is the quote; a quote elsewhere is text.
* In a quoted field a doubled quote is a quote. So is a quote after the escape, which may also stand
  before itself. Elsewhere the escape is text.
* Records end at LF, CR LF or CR. Blank lines are no records, nor are lines of comment.
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

#: Kinds of fields: plain text; quoted; quoted with an escaped character in it; malformed.
PLAIN, QUOTED, ESCAPED, MALFORMED = 0, 1, 2, 3
#: Bytes of a quoted field at most: one that is longer counts as never closed.
LONGEST_FIELD = 1 << 26
BOM = b"\xef\xbb\xbf"
#: Bytes of a file that are looked at to see what it is.
SAMPLE = 1 << 16
#: First bytes of files that are no plain text in UTF-8, and names of what they are.
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
    """The spelling of CSV files.

    Attributes:
        header: whether the first record names the columns; else they are taken by position.
        separator, quote, escape, comment: ASCII characters; empty: none.
        null: the text that is NULL, where it is not quoted.
        quoted_null: whether ``null`` is NULL in quotes, too, and an empty field always.
        empty: the text that a quoted empty field stands for.
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
        """Arguments of :func:`scan`; -1 is a character that does not exist."""
        characters = (self.separator, self.quote, self.escape, self.comment)
        separator, quote, escape, comment = (ord(c) if c else -1 for c in characters)
        return separator, quote, escape, comment, self.multiline

    @property
    def escapes(self) -> tuple[str, str]:
        """Pattern and replacement that turn the content of an escaped field into its text."""
        quote, escape = re.escape(self.quote), re.escape(self.escape)
        doubled = f"{quote}({quote})"
        if not self.escape or self.escape == self.quote:
            return doubled, r"\1"
        return f"{escape}([{quote}{escape}])|{doubled}", r"\1\2"

    def text(self, content: str, mark: int, *, textual: bool) -> str | None:
        """The text of a field's content; None: NULL.

        Args:
            content: without quotes.
            mark: kind of the field.
            textual: whether its column is of text or bytes; any other has no empty values.
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
    """Divide ``data[at:end]`` into records and fields.

    Args:
        data: bytes. ``at`` is the start of a record.
        final: whether the input ends at ``end``; else a record that reaches it is left over.
        most: number of records at most.
        separator, quote, escape, comment, multiline: ``CsvDialect.codes``.
        starts, stops, marks: filled with the content and kind of every field; room for
            :func:`room`.
        firsts: filled with the number of the first field of every record, and a last one more.
        bounds: filled with start and stop of every record, without line end.

    Returns:
        The number of records, and the start of the first one that is left over.
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
            # No record: a blank line, or a comment.
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
    """The most records and fields that ``data`` can be divided into."""
    lines = data.count(b"\n") + data.count(b"\r") + 1
    return lines, lines + data.count(bytes([separator]))


def other_than_utf8(head: bytes) -> str | None:
    """The name of what a file is that begins with ``head`` and is no text in UTF-8; None: it may
    be. A quarter of zero bytes is no text of people.

    >>> other_than_utf8("id,s".encode("utf-16-le")), other_than_utf8(b"id,s")
    ('UTF-16, or no text', None)
    """
    named = next((name for sign, name in _OTHERS.items() if head.startswith(sign)), None)
    if named is None and head and head.count(b"\0") * 4 >= len(head):
        return "UTF-16, or no text"
    return named


@dataclass(frozen=True, slots=True)
class Record:
    """A record: its bytes, and content and kind of each field."""

    raw: bytes
    fields: tuple[tuple[bytes, int], ...]

    @property
    def malformed(self) -> bool:
        """Whether a field of the line is malformed."""
        return any(mark == MALFORMED for _, mark in self.fields)


def records(
    data: bytes, dialect: CsvDialect, most: int | None = None, *, final: bool = True
) -> Iterator[Record]:
    """The first ``most`` records of ``data``, one by one."""
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
    """The names in a header.

    Raises:
        ValueError: it is malformed, or no UTF-8.
    """
    if record.malformed:
        raise ValueError("a quote in the header is not closed")
    return [dialect.text(c.decode(), m, textual=True) or "" for c, m in record.fields]


def positions(header: Sequence[str], columns: Sequence[str]) -> dict[str, int]:
    """Positions of columns in a header; columns that it lacks are left out.

    A name is found exactly, or else without regard to case and spaces around it where that is
    unambiguous.

    Raises:
        ValueError: the header has a column more than once.

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
    """The dialect that options (Spark's names, in any case) describe.

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
        raise _bad(option, f"{text[:20]!r} is no single ASCII character")

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
        remedy="correct it, or leave it out",
    )
