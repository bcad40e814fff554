"""Queries like detection rules over one stream of events, shaped like a public collection of such
rules.

A rule has two or three steps, i.e. events of a category that pass a filter and follow each other
within a time span, for the same entity. A filter has one or two conditions besides the category.
Category and join key are drawn from 120 pairs; the ten most frequent pairs make up half of the
steps. 95 % of the filters are generated newly, and 5 % repeat an earlier one. Equal seeds give
equal rules, and fewer rules are a prefix of more.

The shape is that of the event-sequence rules of a public collection (427 steps of 220 rules, 410
different filters, 121 pairs of category and key); its filters are not copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa

from benchmarks.queries.workload import Query

STREAM = "events"
CATEGORIES = (
    "process", "file", "network", "registry", "library", "authentication", "iam", "dns", "driver",
)  # fmt: skip
#: Key column -> its number of values per row of a batch.
KEYS = {f"key{n}": 1 + n for n in range(14)}
#: Columns that filters compare with a text, and with a number.
TEXTS, NUMBERS = ("name", "parent", "action", "path"), ("port", "bytes", "level")
#: Number of values of a text column, and of a number column.
NAMES, VALUES = 2_000, 10_000
COLUMNS = {
    "category": "string",
    **dict.fromkeys(KEYS, "bigint"),
    **dict.fromkeys(TEXTS, "string"),
    **dict.fromkeys(NUMBERS, "int"),
    "ts": "timestamp",
}
#: Number of pairs of category and key; number of frequent ones; and the frequent ones' share of
#: steps.
PAIRS, FREQUENT, PART = 120, 10, 0.52
#: Share of filters that are new, i.e. do not repeat an earlier one.
NEW = 0.95
SPANS = ("30 seconds", "1 minute", "5 minutes")


def rules(count: int, seed: int = 0) -> Iterator[Query]:
    """Yield ``count`` rules."""
    rng = Random(seed)
    every = [(category, key) for category in CATEGORIES for key in KEYS]
    pairs, known = rng.sample(every, PAIRS), list[str]()
    for number in range(count):
        frequent = rng.random() < PART
        _, key = rng.choice(pairs[:FREQUENT] if frequent else pairs[FREQUENT:])
        own = [category for category, other in pairs if other == key]
        steps = [rng.choice(own) for _ in range(rng.choice((2, 2, 3)))]
        filters = []
        for _ in steps:
            if not known or rng.random() < NEW:
                known.append(_filter(rng))
            filters.append(known[-1] if rng.random() < NEW else rng.choice(known))
        yield _rule(f"r{number:05}", key, steps, filters, rng.choice(SPANS))


def _filter(rng: Random) -> str:
    column = rng.choice(TEXTS)

    def name() -> str:
        """Draw a name; frequent names are more likely."""
        return f"'{column}{min(int(rng.paretovariate(0.4)), NAMES) - 1}'"

    if rng.random() < 0.3:
        conditions = [f"{{0}}.{column} IN ({', '.join(name() for _ in range(rng.randint(2, 5)))})"]
    else:
        conditions = [f"{{0}}.{column} = {name()}"]
    if rng.random() < 0.4:
        number = rng.choice(NUMBERS)
        conditions.append(f"{{0}}.{number} {rng.choice('<>')} {rng.randrange(VALUES)}")
    return " AND ".join(conditions)


def _rule(name: str, key: str, steps: list[str], filters: list[str], span: str) -> Query:
    joins = "".join(
        f" JOIN {STREAM} e{n} ON e0.{key} = e{n}.{key} AND e{n}.ts >= e{n - 1}.ts"
        for n in range(1, len(steps))
    )
    conditions = [
        f"e{n}.category = '{category}' AND {text.format(f'e{n}')}"
        for n, (category, text) in enumerate(zip(steps, filters, strict=True))
    ]
    shown = ", ".join(f"e{n}.name AS name{n}" for n in range(len(steps)))
    sql = f"SELECT {shown} FROM {STREAM} e0{joins} WHERE {' AND '.join(conditions)}"
    return Query(name, sql, span, (STREAM,))


def events(rows: int, first: int, span: int, drawn: np.random.Generator) -> pa.RecordBatch:
    """Generate ``rows`` events between ``first`` and ``first + span`` microseconds. Names and
    categories have Zipf-distributed frequencies, so that some rules have results.
    """

    def frequent(count: int) -> np.ndarray:
        return np.minimum(drawn.zipf(1.3, rows) - 1, count - 1)

    moments = np.sort(drawn.integers(first, first + span, rows))
    return pa.record_batch(
        {
            "category": pa.array([CATEGORIES[c] for c in frequent(len(CATEGORIES))]),
            **{k: pa.array(drawn.integers(0, n * rows // 4, rows)) for k, n in KEYS.items()},
            **{c: pa.array([f"{c}{n}" for n in frequent(NAMES)]) for c in TEXTS},
            **{c: pa.array(drawn.integers(0, VALUES, rows).astype(np.int32)) for c in NUMBERS},
            "ts": pa.array(moments, pa.timestamp("us", tz="UTC")),
        }
    )
