"""Statistics and samples as tables; layout only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape

from anabranch_client.render.tables import (
    facts_table,
    number,
    numbers,
    percent,
    shortened,
    size,
    table_of,
)
from anabranch_client.times import took

if TYPE_CHECKING:
    from anabranch_contract.rest.planning.series import HistoryOut, SeriesOut
    from anabranch_contract.rest.planning.statistics import SampleOut, StatisticsOut

#: Maximum number of frequent values shown per key.
FREQUENT = 3
_BARS = "▁▂▃▄▅▆▇█"
_UNITS = ((3_600_000_000, "h"), (60_000_000, "min"), (1_000_000, "s"), (1_000, "ms"))


def span(micros: int | None) -> str:
    """A readable time span, in its largest unit.

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
    sent = ("sent", "predicted") if found.hosts > 1 else ()
    asked = ("filtered", "dropped") if any(e.asked for e in found.edges.values()) else ()
    edges = table_of("edge", *counts, *asked, *sent, right=(*counts, *asked, *sent))
    for name, edge in found.edges.items():
        each = edge.nanoseconds / edge.probes if edge.probes else None
        predicted = edge.predicted_sent_bytes
        crossing = (size(edge.sent_bytes), "–" if predicted is None else size(round(predicted)))
        measured = numbers(edge.probes, edge.hits, edge.matches, each)
        ahead = numbers(edge.asked, edge.dropped) if asked else ()
        edges.add_row(escape(name), *measured, *ahead, *(crossing if sent else ()))
    facts: dict[str, Any] = {"epoch": found.epoch, "batches": found.batches}
    if sent:
        facts["hosts"] = found.hosts
        if found.locality is not None:
            facts["local"] = f"{percent(found.locality)} of what arrives, by bytes"
    return Group(facts_table(facts), streams, stores, edges, *_values(found))


def _values(found: StatisticsOut) -> tuple[RenderableType, ...]:
    """The most frequent values of keys; empty if none is frequent."""
    shares = ("arriving", "stored", "± at most")
    table = table_of("relation", "key", "frequent value", *shares, right=shares)
    for relation, keys in found.values.items():
        for key, frequent in keys.items():
            names = escape(relation), escape(key)
            for one in frequent.values[:FREQUENT]:
                measured = (one.arriving, one.stored, frequent.error)
                table.add_row(*names, shortened(one.value), *map(percent, measured))
            if frequent.null_stored:
                nulls = (frequent.null_arriving, frequent.null_stored, 0.0)
                table.add_row(*names, "NULL", *map(percent, nulls))
    return (table,) if table.row_count else ()


def series_detail(found: SeriesOut) -> RenderableType:
    """Time series of measurements: newest values and, for steps, a sparkline of the hit ratio."""
    rate = ("per second", "expected")
    rates = table_of("relation", *rate, "course", right=rate)
    expected = found.forecasts or {}
    for name, values in found.relations.items():
        forecast = expected[name].value if name in expected else None
        rates.add_row(escape(name), *numbers(_newest(values), forecast), sparkline(values))
    figures = ("probes", "hit ratio", "expected", "matches per hit", "µs per probe")
    steps = table_of("step", *figures, "hit ratio over time", right=figures)
    for one in found.steps:
        awaited = one.forecast.hit_ratio.value if one.forecast else None
        part = f" ({one.part})" if one.part else ""
        steps.add_row(
            escape(f"{', '.join(one.head)} → {', '.join(one.target)}{part}"),
            number(_newest(one.probes)),
            percent(_newest(one.hit_ratio)),
            percent(awaited),
            *numbers(_newest(one.matches_per_hit), _newest(one.cpu_microseconds)),
            sparkline(one.hit_ratio),
        )
    stores = table_of("store", "tuples", "course", right=("tuples",))
    for name, store in found.stores.items():
        stores.add_row(escape(name), number(_newest(store.tuples)), sparkline(store.tuples))
    seconds = sum(period.seconds for period in found.periods)
    facts = {"periods": len(found.periods), "over": took(seconds)}
    return Group(facts_table(facts), rates, steps, stores)


def history_table(found: HistoryOut) -> RenderableType:
    """Freshness and results of a query over the last day, with minutes that have no record."""
    figures = ("results/min", "freshness p50", "p99")
    table = table_of("until", *figures, "interruptions", right=figures)
    moments = [datetime.fromisoformat(item.at) for item in found.items]
    step = timedelta(seconds=found.seconds)
    items = {
        round((at - moments[0]) / step): item for at, item in zip(moments, found.items, strict=True)
    }
    last = max(items, default=-1)
    for number_, item in ((n, items.get(n)) for n in range(last + 1)):
        until = f"{moments[0] + number_ * step:%Y-%m-%d %H:%M}Z"
        if item is None:
            table.add_row(until, *(["–"] * len(figures)), "no record")
            continue
        rate = None if item.rate is None else 60 * item.rate
        delays = (item.freshness_p50, item.freshness_p99)
        shown = (span(None if d is None else round(1e6 * d)) for d in delays)
        parts = (
            [f"{item.interrupted_minutes} min: {item.interruption}"] if item.interruption else []
        )
        missing = found.seconds // 60 - item.minutes
        # The first row may begin before the history, and the last row is not over yet.
        if missing and 0 < number_ < last:
            parts.append(f"{missing} min without a record")
        table.add_row(until, number(rate), *shown, escape("; ".join(parts)))
    return table


def _newest(values: Sequence[float | None]) -> float | None:
    """The last known value of a series, as a cell."""
    return next((value for value in reversed(values) if value is not None), None)


def sparkline(values: Sequence[float | None], width: int = 30) -> str:
    """The last ``width`` values as bars, scaled from 0 to the greatest; a space for None.

    >>> sparkline([0, None, 2, 4])
    '▁ ▄█'
    """
    shown = values[-width:]
    greatest = max((value for value in shown if value is not None), default=0)
    top = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[int(top * value / greatest) if greatest else 0]
        for value in shown
    )


def sample_detail(found: SampleOut) -> RenderableType:
    """Statistics of a stream's sample, a line for each column of the stream."""
    table = table_of("column", "type", "null", "distinct", "least … greatest", "frequent",
                     right=("null", "distinct"))  # fmt: skip
    for name, column in found.columns.items():
        quantiles = column.quantiles
        ends = f"{quantiles[0]} … {quantiles[-1]}" if quantiles else "–"
        top = ", ".join(f"{t.value} {percent(t.share)}" for t in column.top[:3])
        figures = (percent(column.nulls), number(column.distinct))
        table.add_row(escape(name), column.type, *figures, shortened(ends), shortened(top or "–"))
    facts = {"stream": found.stream, "sampled": f"{found.size:,} of {found.seen:,} tuples"}
    return Group(facts_table(facts), table)
