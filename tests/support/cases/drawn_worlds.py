"""Small random worlds for tests of planning: typed streams, join queries, batches of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random

from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.types import DataType, parse_type
from tests.support.cases.typed_queries import Alias, Condition, Join, build_query
from tests.support.oracles.evaluate import Value
from tests.support.oracles.history import Batch

MINUTE = 60_000_000

#: Key column -> the types that streams may give it; all of them can be compared.
_KEYS = {
    "k": ("int", "bigint", "tinyint", "decimal(6,2)", "decimal(12,0)"),
    "s": ("string",),
    "d": ("double", "float"),
}


@dataclass(frozen=True, slots=True)
class World:
    """Streams, queries and recorded rows.

    Attributes:
        active: query id -> the epochs (first, last + 1) in which it is registered.
        epochs: batches per epoch.
    """

    streams: Mapping[str, Stream]
    queries: tuple[JoinQuery, ...]
    batches: tuple[Batch, ...]
    active: Mapping[str, tuple[int, int]]
    epochs: tuple[int, ...]

    def running(self, epoch: int) -> list[JoinQuery]:
        """Return the queries that are registered in ``epoch``."""
        return [q for q in self.queries if self.active[q.id][0] <= epoch < self.active[q.id][1]]


def random_world(
    rng: Random, *, epochs: int, windowed: bool = False, one_key: bool = False
) -> World:
    """Return a world of 3 to 4 streams and 1 to 4 queries over ``epochs`` epochs.

    With ``windowed`` every stream has a finite lateness and every query a window, so that stored
    tuples expire. With ``one_key`` all join by one key.
    """
    names = ["r", "s", "t", "u"][: rng.choice((3, 3, 4))]
    streams = {name: _stream(name, rng, windowed) for name in names}
    edges = _edges(names, rng)
    if one_key:
        key = f"{rng.choice(sorted(_KEYS))}1"
        edges = {pair: [(key, key)] for pair in edges}
    queries: list[JoinQuery] = []
    active: dict[str, tuple[int, int]] = {}
    for number in range(rng.randint(1, 4)):
        query = _query(f"q{number}", streams, edges, rng, windowed)
        first = 0 if rng.random() < 0.5 else rng.randrange(epochs)
        queries.append(query)
        active[query.id] = (first, epochs if rng.random() < 0.6 else rng.randint(first + 1, epochs))
    lengths = tuple(rng.randint(1, 2) for _ in range(epochs))
    batches = tuple(
        {name: [_row(streams[name], number, rng) for _ in range(rng.randint(0, 3))]
         for name in rng.sample(names, len(names))}
        for number in range(sum(lengths))
    )  # fmt: skip
    return World(streams, tuple(queries), batches, active, lengths)


def _stream(name: str, rng: Random, windowed: bool) -> Stream:
    columns: list[tuple[str, DataType]] = [
        (f"{column}{i}", parse_type(rng.choice(kinds)))
        for column, kinds in _KEYS.items()
        for i in (1, 2)
    ]
    columns += [("v", parse_type("int")), ("ts", parse_type("timestamp"))]
    timed = windowed or rng.random() < 0.85
    lateness = rng.choice((0, 2 * MINUTE, 5 * MINUTE, *(() if windowed else (None,))))
    return Stream(
        StreamName(name), tuple(columns), "ts" if timed else None, lateness if timed else None
    )


def _edges(names: Sequence[str], rng: Random) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """Draw one way to join each pair of streams, so that queries have sub-joins in common."""
    edges = {}
    for one in names:
        for other in names:
            if one <= other:
                kinds = rng.sample(sorted(_KEYS), 2 if rng.random() < 0.25 else 1)
                edges[one, other] = [
                    (f"{kind}{rng.randint(1, 2)}", f"{kind}{rng.randint(1, 2)}") for kind in kinds
                ]
    return edges


def _query(
    name: str,
    streams: Mapping[str, Stream],
    edges: Mapping[tuple[str, str], list[tuple[str, str]]],
    rng: Random,
    windowed: bool,
) -> JoinQuery:
    size = rng.choice((2, 3, 3, 3, 4))
    chosen = rng.sample(sorted(streams), min(size, len(streams)))
    while len(chosen) < size or rng.random() < 0.1:
        chosen = [*chosen, rng.choice(chosen)][-size:]
    aliases = [
        Alias(f"a{i}", stream, _filter(rng) if rng.random() < 0.2 else ())
        for i, stream in enumerate(chosen)
    ]
    joins: list[Join] = []
    for i in range(1, size):
        for j in [rng.randrange(i), *([rng.randrange(i)] if rng.random() < 0.2 else [])]:
            one, other = (i, j) if chosen[i] <= chosen[j] else (j, i)
            for left, right in edges[chosen[one], chosen[other]]:
                pair = ((f"a{one}", left), (f"a{other}", right))
                if pair not in joins:
                    joins.append(pair)
    return build_query(
        name,
        aliases,
        joins,
        streams,
        bounds=_bounds(aliases, streams, rng, windowed),
        residuals=_residuals(aliases, rng),
    )


def _filter(rng: Random) -> tuple[Expr, ...]:
    kind = parse_type("int")
    limit = rng.choice((1, 2))
    return (Call("ge", (Column("", "v", kind), Literal(limit, kind)), BOOLEAN),)


def _bounds(
    aliases: Sequence[Alias], streams: Mapping[str, Stream], rng: Random, windowed: bool
) -> dict[tuple[str, str], int]:
    timed = [a.name for a in aliases if streams[a.stream].event_time]
    kind = "all" if windowed else rng.choice(("none", "all", "some", "pairs"))
    width = rng.randint(1, 12) * MINUTE
    if kind == "all" and len(timed) == len(aliases):
        return {(i, j): width for i in timed for j in timed if i != j}
    if kind == "some" and len(timed) == len(aliases):
        one = rng.choice(timed)
        return {(one, j): width for j in timed if j != one}
    if kind == "pairs" and len(timed) >= 2:
        one, other = rng.sample(timed, 2)
        return {(one, other): width, (other, one): rng.choice((0, -1, 3 * MINUTE))}
    return {}


def _residuals(aliases: Sequence[Alias], rng: Random) -> list[Condition]:
    if rng.random() < 0.7:
        return []
    one, other = rng.sample([a.name for a in aliases], 2)
    return [Condition(rng.choice(("lt", "ne", "le")), (one, "v"), (other, "v"))]


def _row(stream: Stream, batch: int, rng: Random) -> dict[str, Value]:
    row: dict[str, Value] = {}
    for name, kind in stream.columns:
        row[name] = None if rng.random() < 0.08 else _value(name, str(kind), rng)
    row["ts"] = None if rng.random() < 0.05 else (batch * 3 + rng.randint(-4, 4)) * MINUTE
    return row


def _value(column: str, kind: str, rng: Random) -> Value:
    if column.startswith("k"):
        number = rng.randint(1, 3)
        return Decimal(number) if kind.startswith("decimal") else number
    if column.startswith("s"):
        return rng.choice(("", "x", "y"))
    if column.startswith("d"):
        return rng.choice((0.0, -0.0, 1.5, float("nan")))
    return rng.randint(0, 3)
