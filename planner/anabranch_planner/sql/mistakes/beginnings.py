"""Check of a statement's first word, which has to be SELECT or WITH. Other statements are rejected
here, because the parser would read them as an expression, or as a statement that is not a query."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.queries.types import parse_type
from anabranch_planner.sql.places import place_of
from anabranch_planner.sql.unresolved import unsupported

if TYPE_CHECKING:
    from sqlglot import Token

_QUERY = ("SELECT", "WITH")
#: First words that the parser accepts for a query, besides SELECT and WITH.
_OTHERS = frozenset({"FROM", "VALUES", "TABLE"})
SHAPE = "write SELECT ... FROM a [JOIN b ON ...] [WHERE ...]"
_ONLY_SELECT = "register only its SELECT; the query's sink says where the results go"
_APPEND_ONLY = "streams only gain rows: leave rows out with WHERE, or limit how long a stream keeps"
_REMEDIES = {
    "INSERT": "send the rows to the stream's source; a query only reads streams",
    "CREATE": "register a stream for a table: anabranch stream add; for a view register its SELECT",
    "UPDATE": f"{_APPEND_ONLY} them",
    "DELETE": f"{_APPEND_ONLY} them",
    "MERGE": f"{_APPEND_ONLY} them",
    "TRUNCATE": f"{_APPEND_ONLY} them",
    "DROP": "delete the query or the stream {0}: anabranch query rm {0}, anabranch stream rm {0}",
    "ALTER": "change the query or the stream by its name, not by SQL",
    "EXPLAIN": "explain the SELECT after it: anabranch query explain 'SELECT ...'",
    "DESCRIBE": "show the stream and its columns: anabranch stream show {0}",
    "DESC": "show the stream and its columns: anabranch stream show {0}",
    "SHOW": "list streams and queries: anabranch stream list, anabranch query list",
    "SET": "settings are changed by name, not by SQL",
    "USE": "name registered streams; they belong to no database",
}
#: Object that CREATE creates, except tables -> the remedy; ``{0}`` is its name.
_CREATED = {
    "FUNCTION": "allow its Python module, and register it: anabranch function add "
    "'{0}(x DOUBLE) RETURNS DOUBLE' --from MODULE",
    "INDEX": "leave it out: the planner chooses what is indexed",
    "DATABASE": "name registered streams; they belong to no database",
    "SCHEMA": "name registered streams; they belong to no database",
    "CATALOG": "name registered streams; they belong to no catalog",
}
#: Words between CREATE and what it creates.
_ADJECTIVES = frozenset({
    "OR", "REPLACE", "TEMPORARY", "TEMP", "EXTERNAL", "GLOBAL", "LOCAL", "UNIQUE", "UNLOGGED",
    "FOREIGN", "TRANSIENT", "SYSTEM", "SOURCE", "MATERIALIZED",
})  # fmt: skip
_TABLES = frozenset({"TABLE", "STREAM"})
_ABSENT = frozenset({"IF", "NOT", "EXISTS"})
#: Words that end a column's type, or that begin an item other than a column.
_AFTER_TYPE = frozenset({
    "NOT", "NULL", "PRIMARY", "DEFAULT", "COMMENT", "METADATA", "CONSTRAINT", "UNIQUE",
    "REFERENCES", "GENERATED", "CHECK", "COLLATE", "AS", "KEY", "AUTO_INCREMENT",
})  # fmt: skip
_NO_COLUMN = frozenset({"PRIMARY", "CONSTRAINT", "UNIQUE", "FOREIGN", "CHECK", "WATERMARK", "KEY"})
#: Types of Flink that the parser does not know -> equivalent type.
_TYPES = {"bytes": "binary", "row": "struct", "multiset": "array"}


def check_beginning(tokens: Sequence[Token]) -> None:
    """Reject a statement whose first words do not begin a query.

    Raises:
        QueryError: ``unsupported-sql``: it is another kind of statement, which the error names;
            ``malformed-sql``: it is no SQL statement.
    """
    if not tokens or tokens[0].token_type in (TokenType.L_PAREN, TokenType.SEMICOLON):
        return
    first = tokens[0]
    word = first.text.upper()
    if word in _QUERY or word in _OTHERS:
        return
    place = place_of(first)
    if word in _REMEDIES:
        reads = any(token.token_type is TokenType.SELECT for token in tokens)
        raise no_query(word, tokens, reads=reads).moved(position=place)
    close = difflib.get_close_matches(word, _QUERY, n=1)
    raise QueryError(
        "malformed-sql",
        f"the statement begins with {first.text[:60]!r}",
        remedy=f"did you mean {close[0]!r}?" if close else "a query begins with SELECT or WITH",
        position=place,
    )


def no_query(word: str, tokens: Sequence[Token] = (), *, reads: bool) -> QueryError:
    """The error for a statement that is not a query.

    Args:
        word: the statement's first word in upper case. ``tokens``: tokens of the whole statement.
        reads: whether the statement contains a SELECT.
    """
    article = "an" if word[0] in "AEIOU" and word != "USE" else "a"
    if word == "CREATE" and tokens:
        created = _creation(tokens)
        if created is not None:
            return created
    remedy = _ONLY_SELECT if reads and word in ("INSERT", "CREATE") else _REMEDIES.get(word, SHAPE)
    return unsupported(f"{article} {word} statement", remedy.format(_name(tokens[1:]) or "NAME"))


# --- CREATE --------------------------------------------------------------------------------------


def _creation(tokens: Sequence[Token]) -> QueryError | None:
    """The error for a CREATE statement, with the command to use instead; None without a command."""
    words = [token.text.upper() for token in tokens]
    at = next((n for n, word in enumerate(words) if n and word not in _ADJECTIVES), len(words))
    kind, name = words[at] if at < len(words) else "", _name(tokens[at + 1 :])
    if kind == "VIEW" and name and {"TEMPORARY", "TEMP"} & {*words[:at]} and "SELECT" in words:
        return unsupported(
            f"CREATE {' '.join(words[1 : at + 1])}",
            f"write CREATE VIEW {name} AS SELECT ..., which registers query {name}, or WITH {name} "
            "AS (SELECT ...) for one statement",
        )
    if kind in _CREATED:
        return unsupported(f"CREATE {kind}", _CREATED[kind].format(name or "name"))
    opening = next((n for n, word in enumerate(words) if word == "("), len(words))
    if kind not in _TABLES or not name or "SELECT" in words[:opening] or "LIKE" in words[:opening]:
        return None
    command = f"anabranch stream add {name}{''.join(_options(tokens[opening:]))}"
    return unsupported(
        f"CREATE {kind} {name}, as streams are registered by commands,", f"write {command}"
    )


def _name(tokens: Sequence[Token]) -> str:
    """The first name in ``tokens`` that may name a stream, without catalog and database."""
    rest = [token for token in tokens if token.text.upper() not in _TABLES | _ABSENT | {"VIEW"}]
    at = 0
    while at + 2 < len(rest) and rest[at + 1].token_type is TokenType.DOT:
        at += 2
    name = rest[at].text if rest else ""
    return name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) else ""


def _options(tokens: Sequence[Token]) -> Iterator[str]:
    """Options of ``anabranch stream add`` for the columns, keys and source of CREATE TABLE."""
    items, rest = _items(tokens)
    keys, time = list[str](), ""
    for item in items:
        # The parser reads PRIMARY KEY as one word.
        words = [token.text.upper().partition(" ")[0] for token in item]
        if "PRIMARY" in words:
            own = words[0] not in _NO_COLUMN
            keys += [item[0].text] if own else [names[0].text for names in _items(item)[0]]
        if words[0] == "WATERMARK" and len(words) > 2:
            time = f" --event-time {item[2].text}"
            ends = [n for n, word in enumerate(words) if word == "INTERVAL"]
            if ends and len(item) > ends[0] + 2:
                length, unit = item[ends[0] + 1].text, words[ends[0] + 2].lower().rstrip("s")
                time += f" --lateness '{length} {unit}{'' if length == '1' else 's'}'"
        elif words[0] not in _NO_COLUMN and len(item) > 1:
            yield f" --column {shlex.quote(f'{item[0].text}:{_type(item[1:])}')}"
    yield time
    yield "".join([" --kind upsert", *(f" --key {key}" for key in keys)] if keys else [])
    yield _source(rest)


def _items(tokens: Sequence[Token]) -> tuple[list[list[Token]], Sequence[Token]]:
    """The items of CREATE TABLE's list in parentheses, and the tokens after the list."""
    items: list[list[Token]] = [[]]
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text in "(<") - (token.text in ")>") if len(token.text) == 1 else 0
        if token.text == ")" and depth == 0:
            return [item for item in items if item], tokens[number + 1 :]
        if token.text == "," and depth == 1:
            items.append([])
        elif not (token.text == "(" and depth == 1) and depth:
            items[-1].append(token)
    return [item for item in items if item], ()


def _type(tokens: Sequence[Token]) -> str:
    """The name of a column's type for the registration of a stream, from its tokens."""
    words = (token.text.upper().partition(" ")[0] for token in tokens)
    ends = (number for number, word in enumerate(words) if word in _AFTER_TYPE)
    spelled = " ".join(token.text for token in tokens[: next(ends, len(tokens))]).lower()
    for theirs, ours in _TYPES.items():
        spelled = re.sub(rf"\b{theirs}\b", ours, spelled)
    for dialect in ("spark", "postgres"):
        try:
            return str(parse_type(exp.DataType.build(spelled, dialect=dialect).sql("spark")))
        except (SqlglotError, PlannerError):
            continue
    return "string"


def _source(tokens: Sequence[Token]) -> str:
    """Options of ``anabranch stream add`` for the source that clauses after the columns name."""
    words = [token.text for token in tokens]
    upper = [word.upper() for word in words]
    given = {
        words[n - 1].lower(): words[n + 1]
        for n, word in enumerate(words)
        if word == "=" and 0 < n < len(words) - 1
    }
    path = given.get("path", "")
    if "LOCATION" in upper[:-1]:
        path = words[upper.index("LOCATION") + 1]
    if "kafka" in given.get("connector", "") or "kafka_topic" in given:
        brokers = given.get("properties.bootstrap.servers", "HOST:PORT")
        topic = given.get("topic", given.get("kafka_topic", "TOPIC"))
        return (
            f" --format kafka --option {shlex.quote(f'brokers={brokers}')}"
            f" --option {shlex.quote(f'topics={topic}')}"
        )
    if "postgres" in given.get("connector", ""):
        table = given.get("table-name", "TABLE")
        return f" --format postgres --option {shlex.quote(f'table={table}')} --option url=URL"
    return (
        f" --path {shlex.quote(path)}" if path else " --path FOLDER, or --format for another source"
    )
