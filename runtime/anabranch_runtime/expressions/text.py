"""Spark's string functions over Arrow arrays: LIKE, case, substring, trim, length."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_runtime.columns.arrays import by_value
from anabranch_runtime.errors import ExpressionError


def like(text: pa.Array, pattern: str, escape: str = "\\") -> pa.Array:
    """Evaluate ``text LIKE pattern``: ``%`` matches any characters, ``_`` one, unless escaped.

    Raises:
        ExpressionError: ``escape`` precedes an ordinary character, or ends the pattern.
    """
    if escape not in pattern and "_" not in pattern:
        inner = pattern.strip("%")
        if "%" not in inner:
            return _simple(text, pattern, inner)
    return pc.match_substring_regex(text, like_regex(pattern, escape))


def like_regex(pattern: str, escape: str = "\\") -> str:
    r"""Return the regular expression for a LIKE pattern.

    >>> like_regex("50\\%_%")
    '(?s)\\A50%..*\\z'
    """
    parts: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == escape:
            following = pattern[at + 1 : at + 2]
            if following not in ("%", "_", escape) or not following:
                raise ExpressionError(
                    "bad-pattern",
                    f"in the LIKE pattern {pattern!r} the escape character stands alone",
                    remedy=f"write {escape}% or {escape}_ for the characters themselves",
                )
            parts.append(_quoted(following))
            at += 2
            continue
        parts.append(".*" if char == "%" else "." if char == "_" else _quoted(char))
        at += 1
    return r"(?s)\A" + "".join(parts) + r"\z"


def lower(text: pa.Array) -> pa.Array:
    """Convert texts to lower case (SQL's ``lower``), by Unicode's full mapping."""
    return pc.ascii_lower(text) if is_ascii(text) else by_value(text, str.lower, pa.string())


def upper(text: pa.Array) -> pa.Array:
    """Convert texts to upper case (SQL's ``upper``), by Unicode's full mapping."""
    return pc.ascii_upper(text) if is_ascii(text) else by_value(text, str.upper, pa.string())


def length(value: pa.Array) -> pa.Array:
    """Count the characters of strings, or the bytes of binary values (SQL's ``length``)."""
    count = pc.binary_length if pa.types.is_binary(value.type) else pc.utf8_length
    return count(value).cast(pa.int32())


def trim(text: pa.Array) -> pa.Array:
    """Remove leading and trailing spaces, but no other white space (SQL's ``trim``)."""
    return pc.utf8_trim(text, characters=" ")


def concat(parts: list[pa.Array], target: pa.DataType) -> pa.Array:
    """Evaluate ``concat``: texts or binary values row by row; NULL if any part is NULL."""
    empty = pa.scalar("" if pa.types.is_string(target) else b"", target)
    return pc.binary_join_element_wise(
        *[p.cast(target) for p in parts], empty, null_handling="emit_null"
    )


def substring(text: pa.Array, position: pa.Array, count: pa.Array) -> pa.Array:
    """Evaluate ``substring``: ``count`` characters from ``position`` on (1: first, -1: last).

    As in Spark, positions before the first character use up ``count``: ``substring('abc', -5, 3)``
    is ``'a'``.
    """
    where = {(p, c) for p, c in zip(position.to_pylist(), count.to_pylist(), strict=True)}
    if len(where) == 1 and pa.types.is_string(text.type):
        start, size = where.pop()
        if start is not None and size is not None and start >= 0:
            first = max(start - 1, 0)
            if size <= 0:
                kept = pa.array([""]).take(pa.array(np.zeros(len(text), dtype=np.int64)))
                return pc.if_else(text.is_valid(), kept, pa.scalar(None, pa.string()))
            return pc.utf8_slice_codeunits(text, start=first, stop=first + size)
    rows = zip(text.to_pylist(), position.to_pylist(), count.to_pylist(), strict=True)
    return pa.array(
        [
            None if value is None or at is None or size is None else _slice(value, at, size)
            for value, at, size in rows
        ],
        text.type,
    )


def _slice(value: str, position: int, count: int) -> str:
    start = position - 1 if position > 0 else len(value) + position if position < 0 else 0
    return value[max(start, 0) : max(start + count, 0)]


def _simple(text: pa.Array, pattern: str, inner: str) -> pa.Array:
    head, tail = pattern.startswith("%"), pattern.endswith("%")
    if not inner:
        return pc.equal(text, text if pattern else pa.scalar(""))
    if head and tail:
        return pc.match_substring(text, inner)
    if head:
        return pc.ends_with(text, inner)
    if tail:
        return pc.starts_with(text, inner)
    return pc.equal(text, pa.scalar(inner))


def _quoted(char: str) -> str:
    return re.escape(char) if char.isascii() else char


def is_ascii(text: pa.Array) -> bool:
    """Whether all texts have ASCII characters only."""
    return bool(pc.all(pc.string_is_ascii(text)).as_py() is not False)
