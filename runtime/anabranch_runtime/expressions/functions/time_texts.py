"""Spark's date_format and to_timestamp: timestamps as text by a pattern, and back, in UTC.

Both refuse years outside 0001 to 9999.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.time_patterns import Part, fields
from anabranch_runtime.columns.arrays import MICROS_PER_DAY, Bools, Ints, fixed, present, with_nulls
from anabranch_runtime.expressions.casts import malformed, require_years

_MONTHS = [calendar.month_name[n] for n in range(1, 13)]
_DAYS = [calendar.day_name[n] for n in range(7)]
_ORDINALS = ["1st quarter", "2nd quarter", "3rd quarter", "4th quarter"]


class _Fields:
    """Fields of timestamps, such as year and hour, each computed once."""

    day: Ints
    of_year: Ints

    def __init__(self, micros: Ints) -> None:
        self.days, self.time = np.divmod(micros, MICROS_PER_DAY)
        moment = self.days.astype("M8[D]")
        years, months = moment.astype("M8[Y]"), moment.astype("M8[M]")
        self.year = years.astype(np.int64) + 1970
        self.month = months.astype(np.int64) % 12
        self.day = (moment - months.astype("M8[D]")).astype(np.int64) + 1
        self.of_year = (moment - years.astype("M8[D]")).astype(np.int64) + 1
        self.hour = self.time // 3_600_000_000

    def field(self, letter: str, width: int) -> pa.Array:
        """Return, for each timestamp, the text of a field of the pattern (a letter, repeated)."""
        if letter in "ML" and width > 2:
            return _named([m[:3] if width == 3 else m for m in _MONTHS], self.month)
        if letter == "E":
            return _named([d[:3] if width < 4 else d for d in _DAYS], (self.days + 3) % 7)
        if letter in "Qq" and width > 2:
            names = [f"Q{n}" for n in range(1, 5)] if width == 3 else _ORDINALS
            return _named(names, self.month // 3)
        if letter == "a":
            return _named(["AM", "PM"], self.hour // 12)
        if letter == "S":
            fraction = self.time % 1_000_000
            if width <= 6:
                return _numbers(fraction // 10 ** (6 - width), width)
            return _numbers(fraction * 10 ** (width - 6), width)
        return _numbers(self._number(letter, width), width)

    def _number(self, letter: str, width: int) -> Ints:
        if letter == "y":
            return self.year % 100 if width == 2 else self.year
        if letter in "ML":
            return self.month + 1
        if letter in "dD":
            return self.day if letter == "d" else self.of_year
        if letter in "Qq":
            return self.month // 3 + 1
        if letter in "ms":
            return self.time // (60_000_000 if letter == "m" else 1_000_000) % 60
        if letter in "HK":
            return self.hour % (24 if letter == "H" else 12)
        cycle = 24 if letter == "k" else 12
        from_one: Ints = (self.hour + cycle - 1) % cycle + 1
        return from_one


def _named(names: list[str], places: Ints) -> pa.Array:
    return pa.array(names, pa.string()).take(pa.array(places))


@lru_cache(maxsize=8)
def _digits(width: int, most: int) -> pa.Array:
    return pa.array([f"{n:0{width}}" for n in range(most)], pa.string())


def _numbers(values: Ints, width: int) -> pa.Array:
    if width <= 4 and len(values) > 500:
        return _digits(width, 10_000).take(pa.array(values))
    return pa.array([f"{n:0{width}}" for n in values.tolist()], pa.string())


def date_format(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``date_format(timestamp, pattern)``: timestamps as texts by a pattern.

    Raises:
        ExpressionError: a year outside 0001 to 9999.
    """
    valid = present(args[0])
    micros = fixed(args[0], np.int64)
    if valid is not None:
        micros = np.where(valid, micros, 0)
    require_years(args[0], MICROS_PER_DAY)
    parts = _Fields(micros)
    texts = [
        part if isinstance(part, str) else parts.field(*part) for part in _pattern(call, 1)
    ] or [""]
    scalars = [pa.scalar(t, pa.string()) if isinstance(t, str) else t for t in texts]
    first = pa.repeat(scalars[0], len(micros)) if isinstance(texts[0], str) else scalars[0]
    joined = pc.binary_join_element_wise(first, *scalars[1:], pa.scalar(""))
    return joined if valid is None else pc.if_else(pa.array(valid), joined, pa.scalar(None))


def _pattern(call: Call, place: int) -> tuple[Part, ...]:
    pattern = call.args[place]
    assert isinstance(pattern, Literal)
    return fields(str(pattern.value))


_SHORT = {name[:3].lower(): n for n, name in enumerate(_MONTHS)}


@lru_cache(maxsize=256)
def _expression(pattern: tuple[Part, ...]) -> str:
    """Return the regular expression of timestamps' texts that fit a pattern; a group per field."""
    found = "(?i)^"
    for part in pattern:
        if isinstance(part, str):
            found += re.escape(part) if part.isascii() else part
            continue
        letter, width = part
        if (letter, width) == ("M", 3):
            inner = "|".join(_SHORT)
        elif letter == "a":
            inner = "am|pm"
        elif letter == "S":
            inner = f"[0-9]{{1,{width}}}"
        else:
            inner = f"[0-9]{{{width}}}" if width > 1 else "[0-9]{1,2}"
        found += f"(?P<{letter}>{inner})"
    return found + r"\z"


def to_timestamp(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``to_timestamp(text, pattern)``; missing fields are from 1970-01-01 00:00:00.

    Raises:
        ExpressionError: a text that does not match the pattern, or has no such date or time.
    """
    text, pattern = args[0], _pattern(call, 1)
    letters = [part[0] for part in pattern if isinstance(part, tuple)]
    valid = present(text)
    if letters:
        groups = pc.extract_regex(text, pattern=_expression(pattern))
        matched: Bools = np.asarray(groups.is_valid())
        values = {letter: pc.struct_field(groups, letter) for letter in letters}
    else:
        literal = "".join(str(part) for part in pattern)
        matched = np.asarray(pc.fill_null(pc.equal(text, literal), False))
        values = {}
    micros, good = _composed(values, len(text), dict(p for p in pattern if isinstance(p, tuple)))
    wrong = ~(matched & good)
    if valid is not None:
        wrong &= valid
    if wrong.any():
        raise malformed(text[int(np.flatnonzero(wrong)[0])].as_py(), call.type)
    return with_nulls(micros, pa.timestamp("us", "UTC"), valid)


def _composed(
    values: dict[str, pa.Array], length: int, widths: dict[str, int]
) -> tuple[Ints, Bools]:
    """Compute timestamps from their fields' texts, and the mask of valid dates and times."""

    def number(
        letter: str, missing: int, read: Callable[[pa.Array], pa.Array] | None = None
    ) -> Ints:
        if letter not in values:
            return np.full(length, missing, dtype=np.int64)
        column = values[letter]
        whole = read(column) if read else column.cast(pa.int64())
        return np.asarray(pc.fill_null(whole, missing), dtype=np.int64)

    year = number("y", 1970)
    if widths.get("y") == 2:
        year = year + 2000
    by_name = widths.get("M") == 3
    names = pa.array(list(_SHORT))
    month = number(
        "M", 1, (lambda c: pc.add(pc.index_in(pc.utf8_lower(c), names), 1)) if by_name else None
    )
    day = number("d", 1)
    hour, minute, second = number("H", 0), number("m", 0), number("s", 0)
    good = (month >= 1) & (month <= 12) & (year >= 1)
    if "h" in values:
        twelve = number("h", 12)
        good &= (twelve >= 1) & (twelve <= 12)
        late = np.asarray(pc.fill_null(pc.equal(pc.utf8_lower(values["a"]), "pm"), False))
        hour = twelve % 12 + 12 * late
    fraction = number("S", 0, lambda c: pc.utf8_rpad(c, width=6, padding="0").cast(pa.int64()))
    months = (year - 1970) * 12 + np.clip(month, 1, 12) - 1
    first = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    following = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    good &= (day >= 1) & (day <= following - first)
    good &= (hour < 24) & (minute < 60) & (second < 60)
    seconds = hour * 3600 + minute * 60 + second
    return (first + day - 1) * MICROS_PER_DAY + seconds * 1_000_000 + fraction, good


#: Operation -> kernel.
TIME_TEXTS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "date_format": date_format,
    "to_timestamp": to_timestamp,
}
