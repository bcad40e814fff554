"""Spark's functions of regular expressions, by an engine of linear time, and of URLs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.regular import rewritten, rewritten_replacement
from anabranch_runtime.columns.arrays import by_value, present
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import elements, lists
from anabranch_runtime.errors import ExpressionError
from anabranch_runtime.expressions.functions.texts import replaced

_REFERENCE = re.compile(r"\\\d")
_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\(\?P<\w+>|\((?!\?)", re.DOTALL)


def _literals(call: Call) -> list[Any]:
    return [arg.value for arg in call.args[1:] if isinstance(arg, Literal)]


def _run_pattern(kernel: Callable[..., pa.Array], text: pa.Array, **options: Any) -> pa.Array:
    try:
        return kernel(text, **options)
    except pa.ArrowInvalid as error:
        raise ExpressionError(
            "bad-pattern",
            f"the regular expression {options['pattern']!r} is not supported: {error}",
            remedy="write a shorter regular expression",
        ) from error


def rlike(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``text RLIKE pattern``: whether a regular expression matches a part of the text."""
    (pattern,) = _literals(call)
    return _run_pattern(pc.match_substring_regex, args[0], pattern=rewritten(pattern).condition)


def regexp_count(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``regexp_count(text, pattern)``: the number of matches."""
    (pattern,) = _literals(call)
    return _run_pattern(pc.count_substring_regex, args[0], pattern=rewritten(pattern).condition)


def regexp_replace(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``regexp_replace(text, pattern, replacement)``, an SQL function."""
    pattern, replacement = _literals(call)
    found = rewritten(pattern)
    made = rewritten_replacement(replacement, found.groups)
    kernel = partial(_run_pattern, pc.replace_substring_regex, pattern=found.text, replacement=made)
    counter = partial(_run_pattern, pc.count_substring_regex, pattern=found.text)
    return replaced(kernel, counter, args[0], made, copies=len(_REFERENCE.findall(made)))


def regexp_extract(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``regexp_extract(text, pattern, group)``: an empty text if nothing matches."""
    pattern, group = _literals(call)
    found = rewritten(pattern)
    matched = _run_pattern(
        pc.extract_regex, args[0], pattern=_picked(found.condition if group else found.text, group)
    )
    texts = pc.fill_null(pc.struct_field(matched, "it"), "")
    return pc.if_else(args[0].is_valid(), texts, pa.scalar(None, pa.string()))


def _picked(pattern: str, group: int) -> str:
    """Return ``pattern`` in which only ``group`` (0: the complete match) is captured, by name."""
    if group == 0:
        flags = "(?i)" if pattern.startswith("(?i)") else ""
        return f"{flags}(?P<it>{_picked(pattern.removeprefix(flags), -1)})"
    count = 0

    def one(match: re.Match[str]) -> str:
        nonlocal count
        if not match[0].startswith("("):
            return match[0]
        count += 1
        return "(?P<it>" if count == group else "(?:"

    return _GROUP.sub(one, pattern)


def split(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``split(text, pattern)``: the pieces between matches of the pattern."""
    pattern = rewritten(_literals(call)[0]).text
    pieces = _run_pattern(pc.split_pattern_regex, pc.fill_null(args[0], ""), pattern=pattern)
    limits, values = elements(pieces)
    return lists(limits, values, present(args[0]), arrow_type(call.type))


_URL = re.compile(
    r"(?:([A-Za-z][A-Za-z0-9+.-]*):)?(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#(.*))?"
)
_AUTHORITY = re.compile(r"(?:([^@]*)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]*)(?::[0-9]*)?")
_NO_URL = re.compile(r"[\s<>\"{}|\\^`\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")


def parse_url(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``parse_url(url, part[, key])``; NULL if the URL has no such part.

    Raises:
        ExpressionError: a text that is no URL.
    """
    part, *key = _literals(call)
    return by_value(args[0], lambda text: _url_part(text, part, *key), pa.string())


def _is_incomplete(
    scheme: str | None, authority: str | None, path: str, query: str | None, reference: str | None
) -> bool:
    """Whether Java misses the scheme's name, an authority, or all after the scheme."""
    if scheme is None and ":" in path.partition("/")[0] and authority is None:
        return True
    nothing = not path and query is None
    if authority is None:
        return scheme is not None and nothing
    return not authority and nothing and reference is None


def _url_part(text: str, part: str, key: str = "") -> str | None:
    found = None if _NO_URL.search(text) else _URL.fullmatch(text)
    if found is None or _is_incomplete(*found.groups()):
        raise ExpressionError(
            "bad-url", f"{text[:60]!r} is no URL", remedy="filter such rows out first"
        )
    scheme, authority, path, query, reference = found.groups()
    if scheme is not None and authority is None and not path.startswith("/"):
        # To Java such as mailto:x@y.z has one opaque part, and neither a path nor a query.
        path = query = None
    named = _AUTHORITY.fullmatch(authority) if authority else None
    if part == "QUERY" and key:
        inside = re.search(f"(?:^|&){re.escape(key)}=([^&]*)", query or "")
        return None if inside is None else inside[1]
    if part == "FILE":
        return path if query is None else f"{path}?{query}"
    return {
        "PROTOCOL": scheme,
        "HOST": (named[2] or None) if named else None,
        "PATH": path,
        "QUERY": query,
        "REF": reference,
        "AUTHORITY": authority or None,
        "USERINFO": named[1] if named else None,
    }[part]


#: Operation -> kernel.
PATTERNS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "parse_url": parse_url,
    "regexp_count": regexp_count,
    "regexp_extract": regexp_extract,
    "regexp_replace": regexp_replace,
    "rlike": rlike,
    "split": split,
}
#: Operations that can fail on a value.
FALLIBLE = frozenset({"parse_url"})
