"""Statistics and samples as rich tables; no logic but layout."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape

from anabranch_client.render.tables import facts_table, number, numbers, percent, size, table_of
from anabranch_contract.rest.statistics import SampleOut, StatisticsOut

_UNITS = ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def span(micros: int | None) -> str:
    """A time span for people, in its largest unit.

    >>> span(90_000_000), span(0), span(3), span(None)
    ('1.5 min', '0', '3 µs', '–')
    """
    if micros is None:
        return "–"
    for size_, unit in _UNITS:
        if micros >= size_:
            return f"{micros / size_:.3g} {unit}"
    return f"{micros} µs" if micros else "0"


def statistics_detail(found: StatisticsOut) -> RenderableType:
    """One epoch's statistics."""
    figures = ("tuples", "late", "invalid", "ahead", "per second", "per event second")
    delays = ("p50", "p99", "max")
    streams = table_of("stream", *figures, *delays, right=(*figures, *delays))
    for name, s in found.streams.items():
        streams.add_row(
            escape(name),
            *numbers(s.tuples, s.late, s.invalid, s.ahead),
            *numbers(s.tuples_per_second, s.tuples_per_event_second),
            *(span(s.delay_us.get(share)) for share in delays),
        )
    sizes = ("tuples", "size", "segments")
    stores = table_of("store", *sizes, "distinct keys", right=sizes)
    for name, store in found.stores.items():
        keys = ", ".join(f"{key}: {number(round(count))}" for key, count in store.keys.items())
        row = (number(store.tuples), size(store.bytes), number(store.segments), escape(keys))
        stores.add_row(escape(name), *row)
    counts = ("probes", "hits", "matches", "ns per probe")
    edges = table_of("edge", *counts, right=counts)
    for name, edge in found.edges.items():
        each = edge.nanoseconds / edge.probes if edge.probes else None
        edges.add_row(escape(name), *numbers(edge.probes, edge.hits, edge.matches, each))
    facts = {"epoch": found.epoch, "batches": found.batches}
    return Group(facts_table(facts), streams, stores, edges)


def sample_detail(found: SampleOut) -> RenderableType:
    """One stream's sample, a column a line."""
    table = table_of("column", "type", "null", "distinct", "least … greatest", "frequent",
                     right=("null", "distinct"))  # fmt: skip
    for name, column in found.columns.items():
        ends = f"{_text(column.quantiles[0])} … {_text(column.quantiles[-1])}" if (
            column.quantiles) else "–"  # fmt: skip
        top = ", ".join(f"{_text(t.value)} {percent(t.share)}" for t in column.top[:3])
        row = (percent(column.nulls), number(column.distinct), escape(ends), escape(top) or "–")
        table.add_row(escape(name), column.type, *row)
    facts = {"stream": found.stream, "sampled": f"{found.size:,} of {found.seen:,} tuples"}
    return Group(facts_table(facts), table)


def _text(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"
