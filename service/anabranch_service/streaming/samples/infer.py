"""Inference of column types from sample values.

A column of texts gets a type only if all its texts in the sample are of the type, since other
values would be invalid: with a single word among numbers it is a string, and a note names the word.
JSON values have types, so for a column with values of several types the most frequent type is
chosen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.text_values import reader_of
from anabranch_contract.queries.types import (
    FIELD,
    DataType,
    TypeKind,
    array_of,
    parse_type,
    struct_of,
)
from anabranch_service.streaming.samples.fit import SHOWN, Field, Form
from anabranch_service.streaming.samples.sample import Sample

STRING = DataType(TypeKind.STRING)
#: Maximum number of characters of a column's name.
_LONGEST = 256
#: Least share of the most frequent type for a note on the values of other types.
_NEARLY = 0.8
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")
_REAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?"
    r" ?(Z|UTC|[+-][0-9]{2}(:?[0-9]{2})?)?"
)


@dataclass(slots=True)
class Inferred:
    """Columns of a sample, with notes on guesses and on columns that are left out."""

    columns: list[tuple[str, DataType]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, kind: DataType) -> None:
        """Add a column unless a stream can't have its name."""
        why = ""
        if not name or not name.isprintable() or len(name) > _LONGEST:
            why = "its name is empty, too long or has control characters"
        elif name.lower() in (other.lower() for other, _ in self.columns):
            why = "another column differs by case only"
        if why:
            self.notes.append(f"column {name[:60]!r} is left out: {why}")
        else:
            self.columns.append((name, kind))


def infer(sample: Sample) -> Inferred:
    """Infer the columns of a source from sample rows.

    A column of typed files or messages must be in all of them; the order is that of the first.
    """
    found = Inferred()
    first = next(iter(sample.declared), None)
    names: Iterable[str]
    if first is None:
        names = dict.fromkeys(n for row in sample.rows if not isinstance(row, str) for n in row)
    else:
        names = [n for n in first if all(n in other for other in sample.declared)]
        odd = sorted({n for one in sample.declared for n in one} - {*names})
        found.notes += [f"column {n!r} is left out: not all parts have it" for n in odd]
    for name in [name for name in names if name not in sample.beside]:
        kind = None if first is None else first[name]
        if kind is None and sample.form is Form.TYPED:
            found.notes.append(f"column {name!r} is left out: no column can hold its type")
            continue
        kind = kind or _inferred(name, sample, found)
        if kind is not None:
            found.add(name, kind)
    for name, kind in sample.beside.items():
        found.add(name, kind)
    return found


def _inferred(name: str, sample: Sample, found: Inferred) -> DataType | None:
    rows = [(row.get(name), at) for row, at in zip(sample.rows, sample.origins, strict=True)
            if not isinstance(row, str)]  # fmt: skip
    if sample.form is Form.TEXT:
        texts = [(_text(value), at) for value, at in rows]
        return _of_column(name, [(text, at) for text, at in texts if text is not None], found)
    values = [value for value, _ in rows if value is not None]
    kind = json_type(values)
    if kind is None and values:
        found.notes.append(f"column {name!r} is left out: its JSON values have no column type")
        return None
    if kind is None:
        found.notes.append(f"column {name!r} is NULL in all sample rows: string is a guess")
    return kind or STRING


def _text(value: Any) -> str | None:
    """Return the text of a value; None for an empty field, which counts as NULL."""
    return value.text(DataType(TypeKind.DOUBLE)) if isinstance(value, Field) else value


def _of_column(name: str, texts: Sequence[tuple[str, str]], found: Inferred) -> DataType:
    if not texts:
        found.notes.append(f"column {name!r} is NULL in all sample rows: string is a guess")
        return STRING
    kind = text_type([text for text, _ in texts])
    if kind == STRING:
        for other, fits in _TEXTS.items():
            rest = [(text, at) for text, at in texts if not fits(text)]
            if len(rest) <= (1 - _NEARLY) * len(texts):
                text, at = rest[0] if rest else texts[0]
                found.notes.append(
                    f"column {name!r}: {len(texts) - len(rest)} of {len(texts)} values are of type "
                    f"{other}, but not {text[:SHOWN]!r} ({at}); declared as {other}, such rows are "
                    "invalid"
                )
                break
    return kind


def text_type(texts: Iterable[str]) -> DataType:
    """Return the type of texts that all of them have.

    Texts with leading zeros or a plus sign are not numbers, since a number would lose these.

    >>> text_type(["1", "-20"]), text_type(["1", "2.5"]), text_type(["007"])
    ('bigint', 'double', 'string')
    >>> text_type(["2026-01-02"]), text_type(["2026-01-02T03:04:05Z"]), text_type(["true", "False"])
    ('date', 'timestamp', 'boolean')
    """
    given = list(texts)
    return next((kind for kind, fits in _TEXTS.items() if all(map(fits, given))), STRING)


def _reads_text_as(kind: DataType, pattern: re.Pattern[str]) -> Callable[[str], bool]:
    read = reader_of(kind)

    def fits(text: str) -> bool:
        try:
            return pattern.fullmatch(text) is not None and read(text) is not None
        except (ValueError, OverflowError):
            return False

    return fits


#: Type -> whether a text has it; narrower types first.
_TEXTS: Mapping[DataType, Callable[[str], bool]] = {
    kind: _reads_text_as(kind, pattern)
    for kind, pattern in (
        (DataType(TypeKind.BOOLEAN), re.compile("true|false", re.IGNORECASE)),
        (DataType(TypeKind.BIGINT), _WHOLE),
        (DataType(TypeKind.DECIMAL, 38, 0), _WHOLE),
        (DataType(TypeKind.DOUBLE), _REAL),
        (DataType(TypeKind.DATE), _DAY),
        (DataType(TypeKind.TIMESTAMP), _MOMENT),
    )
}
_TIMES = [kind for kind in _TEXTS if kind.kind in (TypeKind.DATE, TypeKind.TIMESTAMP)]


def json_type(values: Iterable[Any]) -> DataType | None:
    """Return the most frequent type of JSON values; None: there is none.

    >>> json_type([1, None, 2.5]), json_type([{"a": [1]}, {"b": "x"}])
    ('double', 'struct<a:array<bigint>,b:string>')
    """
    kinds: dict[type, list[Any]] = {}
    for value in values:
        if value is not None:
            kind = float if type(value) is int else type(value)
            kinds.setdefault(kind, []).append(value)
    if not kinds:
        return None
    most = max(kinds, key=lambda kind: len(kinds[kind]))
    found = _JSON[most](kinds[most])
    try:
        return None if found is None else parse_type(found)
    except PlannerError:
        # The type is nested too deeply.
        return None


def _numbers(values: Sequence[int | float]) -> DataType:
    whole = [value for value in values if type(value) is int]
    if len(whole) < len(values) or any(abs(value) >= 10**38 for value in whole):
        return DataType(TypeKind.DOUBLE)
    fits = all(-(1 << 63) <= value < 1 << 63 for value in whole)
    return DataType(TypeKind.BIGINT) if fits else DataType(TypeKind.DECIMAL, 38, 0)


def _strings(values: Sequence[str]) -> DataType:
    return next((kind for kind in _TIMES if all(map(_TEXTS[kind], values))), STRING)


def _array(values: Sequence[Sequence[Any]]) -> DataType | None:
    elements = [one for value in values for one in value if one is not None]
    kind = json_type(elements) if elements else STRING
    return None if kind is None else array_of(kind)


def _struct_type(values: Sequence[Mapping[str, Any]]) -> DataType | None:
    names = dict[str, str]()
    for name in (name for value in values for name in value):
        if FIELD.fullmatch(name) is not None:
            names.setdefault(name.lower(), name)
    given = {name: [value.get(name) for value in values] for name in names.values()}
    fields = [
        (name, json_type(inner) if any(one is not None for one in inner) else STRING)
        for name, inner in given.items()
    ]
    usable = [(name, kind) for name, kind in fields if kind is not None]
    return struct_of(usable) if usable else None


_JSON: Mapping[type, Callable[[Any], DataType | None]] = {
    bool: lambda _: DataType(TypeKind.BOOLEAN),
    float: _numbers,
    str: _strings,
    list: _array,
    dict: _struct_type,
}
