"""Translation of PostgreSQL's ``to_char`` patterns and JSON operators to Spark's."""

from __future__ import annotations

from sqlglot import exp

from anabranch_planner.sql.unresolved import Node, as_written

#: Element of PostgreSQL's ``to_char`` pattern, in either case -> Spark's equivalent element.
_ELEMENTS = {
    "YYYY": "yyyy", "YY": "yy", "MM": "MM", "DDD": "DDD", "DD": "dd", "HH24": "HH", "HH12": "hh",
    "HH": "hh", "MI": "mm", "SS": "ss", "MS": "SSS", "US": "SSSSSS", "Q": "Q",
}  # fmt: skip
#: Elements of ``to_char`` patterns in which upper and lower case differ in meaning.
_CASED = {"AM": "a", "PM": "a", "Mon": "MMM", "Dy": "EEE"}
_SPELLED = {
    **_ELEMENTS, **{name.lower(): field for name, field in _ELEMENTS.items()}, **_CASED,
}  # fmt: skip
_LONGEST_FIRST = sorted(_SPELLED, key=len, reverse=True)
_PLAIN = frozenset(" -/.,:;")
_JSON = (exp.JSONExtract, exp.JSONExtractScalar)


def as_sparks(pattern: str) -> str:
    """The ``date_format`` pattern that is equivalent to ``pattern`` of PostgreSQL's ``to_char``.

    Raises:
        ValueError: an element has no equivalent in Spark; the message names it.

    >>> as_sparks('YYYY-MM-DD"T"HH24:MI')
    "yyyy-MM-dd'T'HH:mm"
    """
    made, place = "", 0
    if not pattern:
        raise ValueError("an empty pattern, which gives NULL,")
    while place < len(pattern):
        rest = pattern[place:]
        if rest[0] == '"':
            end = rest.find('"', 1)
            text = rest[1:end]
            if end < 0 or "\\" in text:
                raise ValueError(f"the text {rest[:20]}")
            made += _quoted(text)
            place += end + 1
            continue
        if not (rest[0].isalpha() or rest[0] == "\\"):
            made += rest[0] if rest[0] in _PLAIN or rest[0].isdecimal() else _quoted(rest[0])
            place += 1
            continue
        word = _word(rest)
        found = next((name for name in _LONGEST_FIRST if rest.startswith(name)), None)
        if found is None or rest[len(found) :][:1].upper() == found[-1].upper():
            raise ValueError(f"the element {word}")
        made += _SPELLED[found]
        place += len(found)
    return made


def in_sparks_words(node: Node) -> str | None:
    """The remedy for PostgreSQL's JSON operators: Spark's equivalent call; else None."""
    path = ""
    while isinstance(node, _JSON):
        keys = node.expression
        if not isinstance(keys, exp.JSONPath):
            return None
        for key in reversed(keys.expressions[1:]):
            name = key.this if isinstance(key, exp.JSONPathKey) else "n"
            if not isinstance(key, exp.JSONPathKey | exp.JSONPathSubscript) or (
                not str(name).isidentifier()
            ):
                return None
            step = f"[{key.this}]" if isinstance(key, exp.JSONPathSubscript) else f".{key.this}"
            path = step + path
        node = node.this
        while isinstance(node, exp.Paren | exp.Cast):
            node = node.this
    if not path:
        return None
    return f"write the statement in Spark's dialect: get_json_object({as_written(node)}, '${path}')"


def _quoted(text: str) -> str:
    if not text:
        return ""
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _word(rest: str) -> str:
    letters = next((i for i, c in enumerate(rest) if not (c.isalnum() or c == "\\")), len(rest))
    return rest[:letters]
