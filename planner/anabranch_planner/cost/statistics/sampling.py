"""Statistics of columns, and selectivities of filters, from sampled tuples of a stream.

A new query brings filters whose matches have not been counted yet. The selectivity of a filter is
then that of the sample (:func:`estimate`), which is closer to the truth than any constant: with a
uniform sample of 256 tuples it is off by more than 6 points in one case of twenty. A small
evaluator over Python values evaluates filters here, for the operations that are common in filters;
a filter with any other operation is not estimated.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from anabranch_contract.protocol.measurements import StreamSample, Value
from anabranch_contract.queries.expressions import Column, Expr, Literal
from anabranch_contract.queries.joins import JoinQuery, RelationId
from anabranch_contract.queries.types import EXACT, FLOATING, NUMERIC, TypeKind
from anabranch_planner.cost.statistics.statistics import PeriodForecast, Statistics

#: Number of values that :func:`describe` lists, most frequent first.
TOP = 8


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """Statistics of a column, from a sample of the stream's tuples.

    Attributes:
        nulls: fraction of tuples without a value.
        distinct: number of distinct values in the sample.
        top: the most frequent values that occur more than once, each with its fraction of tuples.
        quantiles: the least value, the quartiles and the greatest; empty for unordered types.
    """

    type: str
    nulls: float
    distinct: int
    top: tuple[tuple[Value, float], ...] = ()
    quantiles: tuple[Value, ...] = ()


def describe(sample: StreamSample) -> dict[str, ColumnSummary]:
    """Summary of each column of a stream's ``sample``.

    >>> from anabranch_contract.protocol.measurements import StreamSample
    >>> sample = StreamSample(9, 4, {"a": ("int", [7, 7, None, 2])})
    >>> describe(sample)["a"]  # doctest: +NORMALIZE_WHITESPACE
    ColumnSummary(type='int', nulls=0.25, distinct=2, top=((7, 0.5),), quantiles=(2, 2, 7, 7, 7))
    """
    found = {}
    for name, (kind, given) in sample.columns.items():
        values = [v for v in sample.values(name) if v is not None]
        counts = Counter(values)
        most = sorted(counts.items(), key=lambda c: (-c[1], str(c[0])))[:TOP]
        size = max(len(given), 1)
        found[name] = ColumnSummary(
            kind,
            (len(given) - len(values)) / size,
            len(counts),
            tuple((_plain(value), count / size) for value, count in most if count > 1),
            tuple(_plain(v) for v in _quantiles(values)),
        )
    return found


def _quantiles(values: Sequence[Any]) -> list[Any]:
    """Five-number summary of a sampled column: least value, quartiles and greatest value."""
    ordered = sorted(v for v in values if not (isinstance(v, float) and math.isnan(v)))
    if not ordered:
        return []
    return [ordered[round(q * (len(ordered) - 1) / 4)] for q in range(5)]


def _plain(value: Any) -> Any:
    """A sampled ``value`` converted to a type that JSON has."""
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def distinct_in(sample: StreamSample, names: Sequence[str], size: float) -> float:
    """Estimate of the number of distinct combinations of columns among ``size`` tuples, at least 1.

    The first jackknife estimator of Haas and Stokes (1998): ``d / (1 - f (1 - q) / n)`` with ``d``
    distinct values among ``n`` sampled tuples, ``f`` of them once, and the sampled share ``q``. So
    a column without equal values in the sample is taken to be unique.

    >>> sample = StreamSample(400, 4, {"a": ("int", [7, 7, 2, 3]), "b": ("int", [1, 2, 3, 4])})
    >>> distinct_in(sample, ["a"], 8), round(distinct_in(sample, ["b"], 400))
    (4.0, 400)
    """
    counts = Counter(map(str, zip(*(sample.values(name) for name in names), strict=True)))
    once = sum(count == 1 for count in counts.values())
    drawn = sum(counts.values())
    part = min(drawn / max(size, 1.0), 1.0)
    return max(min(len(counts) / (1 - once * (1 - part) / max(drawn, 1)), size), 1.0)


class CannotEstimateError(Exception):
    """A filter uses an operation that the evaluator of sampled tuples does not support."""


def share(sample: StreamSample, conjuncts: Iterable[Expr]) -> float | None:
    """The fraction of the stream's tuples that satisfy all ``conjuncts``; None if unknown.

    The estimate is (matches + 0.5) / (sampled tuples + 1), because no match in the sample does not
    mean no match in the stream.

    >>> from anabranch_contract.queries.expressions import BOOLEAN, Call
    >>> from anabranch_contract.protocol.measurements import StreamSample
    >>> from anabranch_contract.queries.types import parse_type
    >>> kind = parse_type("int")
    >>> small = Call("lt", (Column("", "a", kind), Literal(3, kind)), BOOLEAN)
    >>> share(StreamSample(900, 4, {"a": ("int", [1, 2, 3, None])}), [small])
    0.5
    """
    conditions = list(conjuncts)
    names = {c.name for e in conditions for c in _columns(e)}
    if not sample.size or not names <= set(sample.columns):
        return None
    values = {name: sample.values(name) for name in names}
    try:
        passed = sum(
            all(
                evaluate(e, lambda c, row=row: values[c.name][row]) is True  # type: ignore[misc]
                for e in conditions
            )
            for row in range(sample.size)
        )
    except (CannotEstimateError, ArithmeticError, TypeError, ValueError):
        return None
    return (passed + 0.5) / (sample.size + 1)


def _columns(expr: Expr) -> Iterable[Column]:
    if isinstance(expr, Column):
        yield expr
    elif not isinstance(expr, Literal):
        for argument in expr.args:
            yield from _columns(argument)


def evaluate(expr: Expr, read: Callable[[Column], Value]) -> Value:
    """The value of ``expr`` in three-valued logic; ``read`` returns a sampled column's value.

    Raises:
        CannotEstimateError: the evaluator does not support an operation of ``expr``.
    """
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Column):
        return read(expr)
    args = [evaluate(a, read) for a in expr.args]
    if expr.op in _LENIENT:
        return _LENIENT[expr.op](args)
    if expr.op not in _STRICT and expr.op != "cast":
        raise CannotEstimateError(expr.op)
    if any(a is None for a in args):
        return None
    if expr.op != "cast":
        found: Value = _STRICT[expr.op](*args)
        return found
    source, target = expr.args[0].type.kind, expr.type.kind
    if source is target:
        return args[0]
    if (
        {source, target} <= NUMERIC
        and target is not TypeKind.DECIMAL
        and target in FLOATING | EXACT
    ):
        return float(args[0]) if target in FLOATING else int(args[0])  # type: ignore[arg-type]
    if source in EXACT and target is TypeKind.DECIMAL:
        return Decimal(args[0])  # type: ignore[arg-type]
    raise CannotEstimateError(f"cast {source} to {target}")


def _and(args: list[Value]) -> Value:
    """AND of sampled values in three-valued logic, where None is NULL."""
    if any(a is False for a in args):
        return False
    return None if any(a is None for a in args) else True


def _or(args: list[Value]) -> Value:
    """OR of sampled values in three-valued logic, where None is NULL."""
    if any(a is True for a in args):
        return True
    return None if any(a is None for a in args) else False


def _in(args: list[Value]) -> Value:
    if args[0] is None:
        return None
    if any(a is not None and _compare(args[0], a) == 0 for a in args[1:]):
        return True
    return None if any(a is None for a in args[1:]) else False


def _compare(left: Any, right: Any) -> int:
    """Order of two sampled values: -1, 0 or 1; NaN equals NaN and is greater than all others."""
    one, other = ((isinstance(v, float) and math.isnan(v), v) for v in (left, right))
    if one[0] or other[0]:
        return int(one[0]) - int(other[0])
    return int(left > right) - int(left < right)


def _like(text: Any, pattern: Any) -> bool:
    parts = re.findall(r"\\(.)|([%_])|(.)", str(pattern), re.DOTALL)
    pieces = [""]
    for escaped, wild, plain in parts:
        if wild == "%":
            pieces.append("")
        else:
            pieces[-1] += "." if wild else re.escape(escaped or plain)
    # Each piece between two % is matched at its first occurrence only (atomic groups): backtracking
    # would take exponential time.
    first, *rest = pieces
    inner = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    whole = first + inner + (f".*{rest[-1]}" if rest else "")
    return re.fullmatch(whole, str(text), re.DOTALL) is not None


_LENIENT: dict[str, Callable[[list[Value]], Value]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "is_null": lambda a: a[0] is None,
    "is_not_null": lambda a: a[0] is not None,
    "coalesce": lambda a: next((v for v in a if v is not None), None),
}

_STRICT: dict[str, Callable[..., Any]] = {
    "eq": lambda a, b: _compare(a, b) == 0,
    "ne": lambda a, b: _compare(a, b) != 0,
    "lt": lambda a, b: _compare(a, b) < 0,
    "le": lambda a, b: _compare(a, b) <= 0,
    "gt": lambda a, b: _compare(a, b) > 0,
    "ge": lambda a, b: _compare(a, b) >= 0,
    "not": lambda a: not a,
    "like": _like,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": abs,
    "lower": lambda a: a.lower(),
    "upper": lambda a: a.upper(),
    "length": len,
}


def estimate(
    base: Statistics, queries: Iterable[JoinQuery], samples: Mapping[str, StreamSample]
) -> Statistics:
    """``base`` with estimates from samples for filtered relations of ``queries`` without figures.

    A relation with a fraction ``s`` of its stream's ``n`` tuples has that fraction of its arrivals.
    Values are assumed to be independent of the filter: it has the stream's frequent values, and
    ``d * (1 - (1 - s) ** (n / d))`` of ``d`` equally frequent distinct values.
    """
    shares: dict[RelationId, float] = {}
    streams: dict[RelationId, RelationId] = {}
    for name, one in {r.id: r for q in queries for r in q.relations}.items():
        sample = samples.get(one.stream)
        if sample is None or not one.filter or base.cardinality(name) is not None:
            continue
        found = share(sample, one.filter)
        if found is not None:
            shares[name], streams[name] = found, RelationId(one.stream)
    if not shares:
        return base
    readers: dict[RelationId, list[RelationId]] = {}
    for relation, stream in streams.items():
        readers.setdefault(stream, []).append(relation)
    known = base.cardinalities
    sizes = {relation: known[stream] for relation, stream in streams.items() if stream in known}
    distincts = {
        (relation, columns): _expected(count, sizes[relation], shares[relation])
        for (stream, columns), count in base.distincts.items()
        for relation in readers.get(stream, ())
        if relation in sizes and count and relation not in base.every_distinct
    }
    every = {
        relation: _expected(base.every_distinct[streams[relation]], size, shares[relation])
        for relation, size in sizes.items()
        if base.every_distinct.get(streams[relation])
    }
    values = {
        (relation, column): frequent
        for (stream, column), frequent in base.values.items()
        for relation in readers.get(stream, ())
    }
    return replace(
        base,
        cardinalities={
            **known,
            **{relation: max(size * shares[relation], 1.0) for relation, size in sizes.items()},
        },
        distincts={**distincts, **base.distincts},
        every_distinct={**every, **base.every_distinct},
        values={**values, **base.values},
        ahead=_shared(base.ahead, shares, streams),
        estimated={**base.estimated, **shares},
    )


def _expected(values: float, size: float, share: float) -> float:
    """Expected distinct values in a fraction ``share`` of ``size`` tuples with ``values``."""
    return float(max(values * (1.0 - (1.0 - min(share, 1.0)) ** (size / values)), 1.0))


def _shared(
    coming: PeriodForecast | None,
    shares: Mapping[RelationId, float],
    streams: Mapping[RelationId, RelationId],
) -> PeriodForecast | None:
    """The forecast ``coming`` with filtered relations that it lacks, as shares of their streams."""
    if coming is None:
        return None
    known = {
        relation: (share, streams[relation])
        for relation, share in shares.items()
        if relation not in coming.arrivals and streams[relation] in coming.arrivals
    }
    return replace(
        coming,
        arrivals={
            **coming.arrivals,
            **{r: coming.arrivals[s] * share for r, (share, s) in known.items()},
        },
        recent={
            **coming.recent,
            **{
                r: tuple((age, rows * share) for age, rows in coming.recent.get(s, ()))
                for r, (share, s) in known.items()
            },
        },
    )
