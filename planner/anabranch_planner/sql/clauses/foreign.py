"""Well-known SQL constructs of other systems that the parser can't read, with their remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.places import place_of
from anabranch_planner.sql.unresolved import unsupported

if TYPE_CHECKING:
    from sqlglot import Token

#: First word of a construct at which the parser fails later -> maximum tokens in between.
_LATE = {"OPTION": 4, "WINDOW": 4}
_OUT = "leave it out"
_WINDOW = "write GROUP BY window(ts, '10 minutes'), with the stream's event time for ts"
_CONTINUOUS = f"{_OUT}: every query runs continuously and emits its changes"
_PLANNED = f"{_OUT}: the planner chooses how a query runs"
_NAMED = "write names in backticks, `name`, or without brackets"
_JDBC = "write {} '...' without braces"
#: Words of a construct -> its name in messages, and the remedy. ``#`` stands for a number.
_KNOWN: dict[tuple[str, ...], tuple[str, str]] = {
    ("MODEL", "DIMENSION", "BY"): ("MODEL", "write cells as CASE, or as lag(x) OVER (...)"),
    ("SELECT", "TOP", "#"): ("SELECT TOP", "write ORDER BY x LIMIT {number} at the end"),
    ("OPTION", "("): ("OPTION", _PLANNED),
    **{(word, "INDEX"): (f"{word} INDEX", _PLANNED) for word in ("USE", "FORCE", "IGNORE")},
    **{("WITH", level): (f"WITH {level}", f"{_OUT}: there are no locks")
       for level in ("UR", "CS", "RS", "RR")},
    ("SETTINGS",): ("SETTINGS", _OUT),
    ("FORMAT",): ("FORMAT", f"{_OUT}: the query's sink says the format of its results"),
    ("EMIT", "CHANGES"): ("EMIT CHANGES", _CONTINUOUS),
    ("EMIT", "FINAL"): ("EMIT FINAL", _CONTINUOUS),
    **{("WINDOW", kind): (f"WINDOW {kind}", _WINDOW) for kind in ("TUMBLING", "HOPPING")},
    ("WINDOW", "SESSION"): ("WINDOW SESSION", "write GROUP BY session_window(ts, '10 minutes')"),
    ("WITHIN", "#"): (
        "JOIN ... WITHIN",
        "write the bound into ON: b.ts BETWEEN a.ts - INTERVAL '1' HOUR AND a.ts + INTERVAL '1' "
        "HOUR",
    ),
    ("TIMESTAMP", "BY"): ("TIMESTAMP BY", f"{_OUT}: the stream's registration names its time"),
    ("SYSTEM", "TIME"): ("AS OF SYSTEM TIME", f"{_OUT}: every query reads from the beginning"),
    ("SAMPLE", "BY"): ("SAMPLE BY", _WINDOW),
    ("LATEST", "ON"): (
        "LATEST ON", "write QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1"
    ),
    ("LEFT", "ANY"): ("LEFT ANY JOIN", "join a subquery with QUALIFY row_number() OVER (...) = 1"),
    ("{", "TS"): ("a timestamp in braces", _JDBC.format("TIMESTAMP")),
    ("{", "D"): ("a date in braces", _JDBC.format("DATE")),
    ("[",): ("a name in brackets", _NAMED),
    ("%", "S"): ("a parameter %s", "write :x, and its value in parameters"),
    ("XML",): ("PIVOT XML", "leave XML out, and write the values into IN ('a', 'b')"),
    ("^", "="): ("^=", "write <>"),
    ("!", ">"): ("!>", "write <="),
    ("!", "<"): ("!<", "write >="),
    ("*", "="): ("*=", "write LEFT JOIN ... ON"),
    ("MEMBER", "OF"): ("MEMBER OF", "write array_contains(a, x)"),
    **{
        ("#", f"{unit}{s}"): (
            f"a length of time {{number}} {unit}{s}", f"write INTERVAL '{{number}}' {unit}"
        )
        for unit in ("SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR") for s in ("", "S")
    },
}  # fmt: skip
_PATTERN = "MATCH_RECOGNIZE"


def known_construct(tokens: Sequence[Token], place: tuple[int, int]) -> QueryError | None:
    """The error for the construct of another system at which the parser failed at ``place``; None
    if no known construct is there."""
    words = [_word(token) for token in tokens]
    near = next((i for i, token in enumerate(tokens) if place_of(token) >= place), len(tokens) - 1)
    if _PATTERN in words[: near + 1]:
        index = words.index(_PATTERN)
        remedy = _joins(tokens[index - 1 : index] if index else (), tokens[index:])
        return unsupported(_PATTERN, remedy).moved(position=place_of(tokens[index]))
    for index in range(max(near - max(_LATE.values()), 0), near + 1):
        for length in (3, 2, 1):
            found = _KNOWN.get(tuple(words[index : index + length]))
            if found is None or near - index > _LATE.get(words[index], length):
                continue
            number = next((token.text for token in tokens[index:] if _word(token) == "#"), "")
            what, remedy = (text.format(number=number) for text in found)
            return unsupported(what, remedy).moved(position=place_of(tokens[index]))
    return None


def _word(token: Token) -> str:
    if token.token_type is TokenType.NUMBER:
        return "#"
    # Quoted words belong to no construct.
    is_quoted = token.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
    return "" if is_quoted else token.text.upper()


def _joins(table: Sequence[Token], clause: Sequence[Token]) -> str:
    """Remedy for MATCH_RECOGNIZE: joins that find a pattern of two rows, in its names."""
    words = [_word(token) for token in clause]
    key, time = _after(clause, words, "PARTITION BY", "k"), _after(clause, words, "ORDER BY", "ts")
    name = table[0].text if table else "s"
    first, second = "A", "B"
    if "PATTERN" in words:
        inside = clause[words.index("PATTERN") + 1 :]
        end = next((i for i, t in enumerate(inside) if t.text == ")"), len(inside))
        found = [t.text for t in inside[:end] if t.text.isidentifier()]
        first, second = (*found, first, second)[:2] if len(found) > 1 else (first, second)
    return (
        f"write the rows of the pattern as joins with time bounds: FROM {name} AS {first} JOIN "
        f"{name} AS {second} ON {second}.{key} = {first}.{key} AND {second}.{time} > "
        f"{first}.{time} AND {second}.{time} <= {first}.{time} + INTERVAL '1' HOUR WHERE ..."
    )


def _after(clause: Sequence[Token], words: Sequence[str], word: str, default: str) -> str:
    place = words.index(word) + 1 if word in words else len(clause)
    return clause[place].text if place < len(clause) else default
