"""Conversion of a sample's values to the types of a stream's columns, value by value.

The runtime converts whole columns by the same rules (``docs/sources.md``, *values that do not
fit*). Text is parsed by the same functions as in the runtime (``contract.queries.text_values``).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from enum import StrEnum
from typing import Any

import pyarrow as pa

from anabranch_contract.connectors.csv_text import CsvDialect
from anabranch_contract.queries.text_values import BITS, interval_text, reader_of
from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    TIMESTAMPS,
    DataType,
    TypeKind,
)
from anabranch_contract.rest.source_tests import MisfitOut
from anabranch_service.clock import in_utc
from anabranch_service.streaming.samples.arrow_types import arrow_type

#: Maximum number of characters of a value in an answer.
SHOWN = 120

#: Maximum number of digits of a decimal.
_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a CSV record. ``mark``: plain, quoted or escaped (``csv_text.scan``)."""

    content: str
    mark: int
    dialect: CsvDialect

    def text(self, kind: DataType) -> str | None:
        """Return the field's text, to be converted to type ``kind``; None for NULL."""
        textual = kind.kind in (TypeKind.STRING, TypeKind.BINARY)
        return self.dialect.text(self.content, self.mark, textual=textual)


class Form(StrEnum):
    """Form of sample values: JSON values, text, or typed by a file's schema."""

    JSON = "json"
    TEXT = "text"
    TYPED = "typed"


@dataclass(frozen=True, slots=True)
class Fitted:
    """Sample rows converted to a stream's columns.

    Attributes:
        rows: JSON values by column. ``invalid``: indexes of rows with values that do not fit.
        times: event times of the other rows.
    """

    rows: list[dict[str, Any]]
    invalid: frozenset[int]
    misfits: list[MisfitOut]
    times: list[datetime]


def fit(
    arrived: Sequence[Mapping[str, Any] | str],
    columns: Sequence[tuple[str, DataType]],
    event_time: str | None,
    form: Form,
) -> Fitted:
    """Convert the rows ``arrived`` to ``columns``; a text in place of a row is malformed input."""
    rows: list[dict[str, Any]] = []
    misfits: list[MisfitOut] = []
    times: list[datetime] = []
    for number, values in enumerate(arrived):
        if isinstance(values, str):
            expected = "an object with the stream's columns"
            misfits.append(
                MisfitOut(row=number, column=None, value=values[:SHOWN], expected=expected)
            )
            rows.append({name: None for name, _ in columns})
            continue
        row, wrong, moment = {}, [], None
        for name, kind in columns:
            given, own = values.get(name), form
            if isinstance(given, Field):
                given, own = given.text(kind), Form.TEXT
            elif isinstance(given, pa.Scalar):
                own = Form.TYPED
            found = _converted(given, kind, own)
            if found is not None and name == event_time:
                moment = found
            if found is None and (given is not None or name == event_time):
                expected = (
                    f"{kind}{', not null, since it is the event time' if given is None else ''}"
                )
                shown = None if given is None else _text(given)
                wrong.append(MisfitOut(row=number, column=name, value=shown, expected=expected))
            row[name] = _json(found)
        rows.append(row)
        misfits += wrong
        if moment is not None and not wrong:
            times.append(
                in_utc(moment) if isinstance(moment, datetime) else in_utc(_midnight(moment))
            )
    return Fitted(rows, frozenset(m.row for m in misfits), misfits, times)


def _converted(value: Any, kind: DataType, form: Form) -> Any:
    """Return ``value`` as a Python value of type ``kind``; None for NULL, or if it does not fit."""
    if value is None:
        return None
    try:
        if form is Form.TYPED:
            return _typed_value(value, kind)
        return _from_text(value, kind) if form is Form.TEXT else _from_json(value, kind)
    except (ValueError, TypeError, OverflowError, InvalidOperation, pa.ArrowException):
        return None


def _typed_value(value: Any, kind: DataType) -> Any:
    wanted = arrow_type(kind)
    scalar = value if isinstance(value, pa.Scalar) else pa.scalar(value)
    if not scalar.is_valid:
        return None
    if pa.types.is_timestamp(scalar.type) and pa.types.is_timestamp(wanted):
        # Nanoseconds are truncated to microseconds.
        return scalar.cast(wanted, safe=False).as_py()
    if kind.kind in INTERVALS:
        length = scalar.cast(pa.duration("us")) if pa.types.is_duration(scalar.type) else scalar
        return interval_text(length.cast(wanted).as_py(), kind)
    return scalar.cast(wanted).as_py()


def _from_json(value: Any, kind: DataType) -> Any:
    here = kind.kind
    if here is TypeKind.ARRAY:
        return [_part(one, kind.element) for one in value] if type(value) is list else None
    if here is TypeKind.STRUCT:
        if type(value) is not dict:
            return None
        return {name: _part(value.get(name), of) for name, of in kind.fields}
    if here is TypeKind.MAP:
        if type(value) is not dict:
            return None
        return {name: _part(one, kind.element) for name, one in value.items()}
    if here is TypeKind.VARIANT:
        return value
    if here in INTEGRAL:
        return _integer(value, here) if type(value) is int else None
    if here in FLOATING:
        return float(value) if type(value) in (int, float) else None
    if here is TypeKind.DECIMAL:
        return _decimal(str(value), kind) if type(value) in (int, float, str) else None
    if here is TypeKind.BOOLEAN:
        return value if type(value) is bool else None
    if type(value) is not str:
        return None
    return (
        base64.b64decode(value, validate=True)
        if here is TypeKind.BINARY
        else _from_text(value, kind)
    )


def _part(value: Any, kind: DataType) -> Any:
    """Convert a sampled value inside an array, struct or map.

    Raises:
        ValueError: the value does not fit.
    """
    found = None if value is None else _from_json(value, kind)
    if found is None and value is not None:
        raise ValueError(f"{value!r} is not of type {kind}")
    return found


def _from_text(text: Any, kind: DataType) -> Any:
    value = reader_of(kind)(str(text))
    if value is None:
        return None
    if kind.kind in INTERVALS:
        return interval_text(value, kind)
    if kind.kind is TypeKind.DATE:
        return date(1970, 1, 1) + timedelta(days=value)
    if kind.kind in TIMESTAMPS:
        moment = datetime(1970, 1, 1) + timedelta(microseconds=value)  # noqa: DTZ001 - has no zone
        return moment.replace(tzinfo=UTC) if kind.kind is TypeKind.TIMESTAMP else moment
    return value


def _integer(value: int, kind: TypeKind) -> int | None:
    half = 1 << (BITS[kind] - 1)
    return value if -half <= value < half else None


def _decimal(text: str, kind: DataType) -> Decimal | None:
    with localcontext(prec=2 * _DIGITS):
        value = Decimal(text)
        if not value.is_finite():
            return None
        scaled = round(value, kind.scale)
        return scaled if abs(scaled) < Decimal(10) ** (kind.precision - kind.scale) else None


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _json(value: Any) -> Any:
    """Return a sampled ``value`` as a JSON value; texts are shortened."""
    if isinstance(value, bytes):
        return base64.b64encode(value[:SHOWN]).decode()
    if isinstance(value, dict):
        return {str(name): _json(one) for name, one in value.items()}
    if isinstance(value, list):
        if value and all(isinstance(one, tuple) for one in value):
            # A map.
            return {str(_json(key)): _json(one) for key, one in value}
        return [_json(one) for one in value]
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime | date):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, float) and value - value != 0.0:
        # JSON has neither infinities nor NaN.
        return str(value)
    return value[:SHOWN] if isinstance(value, str) else value


def _text(value: Any) -> str:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:SHOWN]
