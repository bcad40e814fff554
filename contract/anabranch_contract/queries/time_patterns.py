"""Patterns of dates and times, such as ``yyyy-MM-dd HH:mm``, as Spark reads them.

In a pattern, letters mean fields, text between single quotes means itself, and two quotes mean one;
other characters mean themselves (Spark's "Datetime Patterns for Formatting and Parsing").

>>> fields("dd.MM.'x'")
(('d', 2), '.', ('M', 2), '.x')
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import groupby, pairwise

#: A field of a pattern (its letter and width), or a literal text.
Part = tuple[str, int] | str
#: Letter of a field -> its maximum width when dates are formatted.
_WRITTEN = {
    "y": 4, "M": 4, "L": 4, "d": 2, "E": 4, "a": 1, "H": 2, "h": 2, "K": 2, "k": 2, "m": 2,
    "s": 2, "S": 9, "D": 3, "Q": 4, "q": 4,
}  # fmt: skip
_READ = {"y": 4, "M": 3, "d": 2, "a": 1, "H": 2, "h": 2, "m": 2, "s": 2, "S": 6}
#: Pattern of a text in quotes, a text outside of quotes, or a quote that is not closed.
_PIECES = re.compile(r"('(?:[^']|'')*')|([^']+|')")
#: Pairs of letters that exclude each other: two hours of a day, or a 24-hour field with AM/PM.
_CLASHES = (("H", "h"), ("H", "a"))


@lru_cache(maxsize=512)
def fields(pattern: str) -> tuple[Part, ...]:
    """Split a pattern of dates and times into fields and literal texts.

    Raises:
        ValueError: ``pattern`` is not valid; the message gives the reason.
    """
    found: list[Part] = []
    for quoted, plain in _PIECES.findall(pattern):
        if quoted:
            # Two quotes mean one, also within a quoted text.
            found.append(quoted[1:-1].replace("''", "'") or "'")
        if plain == "'":
            raise ValueError("a quote is not closed")
        for letter, run in groupby(plain):
            width = len(list(run))
            if letter.isascii() and letter.isalpha():
                found.append((letter, width))
            elif letter in "[]{}#":
                raise ValueError(f"{letter} is reserved")
            else:
                found.append(letter * width)
    joined: list[Part] = []
    for part in found:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def check_written(pattern: str) -> None:
    """Check a pattern with which date_format writes dates and times.

    Raises:
        ValueError: a field that is not supported.
    """
    for part in fields(pattern):
        if isinstance(part, tuple):
            _check_field(part, _WRITTEN)


def check_read(pattern: str) -> None:
    """Check a pattern with which to_timestamp reads dates and times.

    Raises:
        ValueError: a field that can't be read, fields that contradict each other, or adjacent
            fields without a separator.
    """
    parts = fields(pattern)
    letters = [part[0] for part in parts if isinstance(part, tuple)]
    for part in parts:
        if isinstance(part, tuple):
            _check_field(part, _READ)
    for letter in letters:
        if letters.count(letter) > 1:
            raise ValueError(f"{letter} occurs twice")
    for one, other in _CLASHES:
        if one in letters and other in letters:
            raise ValueError(f"{one} and {other} clash")
    if "h" in letters and "a" not in letters:
        raise ValueError("h needs a (AM or PM)")
    if "a" in letters and "h" not in letters:
        raise ValueError("a needs h")
    for part, following in pairwise(parts):
        if isinstance(part, tuple) and isinstance(following, tuple):
            numbers = part[0] != "a" and following[0] != "a"
            if numbers and (part[1] == 1 or following[1] == 1 or part in (("M", 3), ("y", 3))):
                raise ValueError(f"nothing separates {part[0]} and {following[0]}")


def _check_field(part: tuple[str, int], known: dict[str, int]) -> None:
    letter, width = part
    if letter not in known or width > known[letter]:
        raise ValueError(f"{letter * width} is not supported")
    if letter == "y" and width in (1, 3) and known is _READ:
        raise ValueError(f"{letter * width} is not supported: write yyyy")
