"""Stores, segments and indexes of a pipeline as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape
from rich.text import Text

from anabranch_client.render.tables import facts_table, number, percent, size, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


def stores_table(found: Mapping[str, Any]) -> RenderableType:
    """All stores of a state directory, a line each, and their total size on disk."""
    spare = size(found["spare_bytes"])
    facts = {"state": found["state"], **_standing(found), "kept for going back": spare}
    return Group(facts_table(facts), _stores_table(found), *_tables(found))


def live_table(found: Mapping[str, Any]) -> RenderableType:
    """All stores of a running pipeline, one per line, with their reads."""
    return Group(facts_table(_standing(found)), _stores_table(found, _ASKED), *_tables(found))


#: Columns with the counts of a store's reads in the last epoch.
_ASKED: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "probes": lambda reads: number(reads["probes"]),
    "hit rate": lambda reads: percent(reads["hit_rate"]),
    "segments per probe": lambda reads: number(reads["read_amplification"]),
    "filtered": lambda reads: percent(reads["filtered_share"]),
    "passed over": lambda reads: percent(reads["passed_share"]),
}


def _stores_table(
    found: Mapping[str, Any],
    asked: Mapping[str, Callable[[Mapping[str, Any]], str]] = MappingProxyType({}),
) -> RenderableType:
    table = table_of("store", "of", "queries", "rows", "bytes", "indexes", "segments", "levels",
                   *asked,
                   right=("rows", "bytes", "indexes", "segments", *asked))  # fmt: skip
    for store in found["stores"]:
        reads = store.get("reads")
        table.add_row(
            escape(store["store"]),
            escape(_of(store)),
            escape(", ".join(store["queries"]) or "–"),
            number(store["rows"]),
            size(store["bytes"]),
            size(store["index_bytes"]),
            number(store["segments"]),
            " ".join(f"{one['level']}:{one['segments']}" for one in store["levels"]) or "–",
            *(show(reads) if reads else "–" for show in asked.values()),
        )
    return table


def _tables(found: Mapping[str, Any]) -> list[RenderableType]:
    """A table of a state report's maintained views, a line each; an empty list without views."""
    columns = ("rows", "changes", "version", "rounds since checkpoint")
    table = table_of("table", *columns, right=columns)
    for one in found["tables"]:
        numbers = (one["rows"], one["changes"], one["version"], one["rounds"])
        table.add_row(escape(one["query"]), *map(number, numbers))
    return [table] if found["tables"] else []


def store_detail(store: Mapping[str, Any]) -> RenderableType:
    """One store of a state directory and its segments."""
    table = table_of("pack", "partition", "level", "rows", "bytes", "batches", "indexes",
                   right=("partition", "level", "rows", "bytes"))  # fmt: skip
    for part in store["parts"]:
        indexes = (f"{i['key']}{' unique' if i['unique'] else ''}" for i in part["indexes"])
        pack = escape(part["pack"].removeprefix("segments/"))
        table.add_row(pack, *_part(part), escape(", ".join(indexes)))
    return Group(facts_table(_store_facts(store)), table)


def live_detail(store: Mapping[str, Any]) -> RenderableType:
    """One store of a running pipeline: its segments, its indexes, its readers."""
    reads = store["reads"]
    asked = {name: show(reads) for name, show in _ASKED.items()} if reads else {}
    segments = table_of("partition", "level", "rows", "bytes", "batches",
                      right=("partition", "level", "rows", "bytes"))  # fmt: skip
    for part in store["parts"]:
        segments.add_row(*_part(part))
    indexes = table_of("index", "entries", "bytes", "filter", *_ASKED,
                     right=("entries", "bytes", "filter", *_ASKED))  # fmt: skip
    for index in store["indexes"]:
        indexes.add_row(
            escape(index["key"]),
            number(index["entries"]),
            size(index["bytes"]),
            size(index["filter_bytes"]),
            *(show(index["life"]) for show in _ASKED.values()),
        )
    readers = table_of("read by", "for")
    for reader in store["readers"]:
        readers.add_row(escape(reader["edge"]), escape(", ".join(reader["queries"])))
    return Group(facts_table({**_store_facts(store), **asked}), segments, indexes, readers)


def _store_facts(store: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "store": store["store"],
        "of": _of(store),
        "streams": ", ".join(store["streams"]),
        "filter": " AND ".join(store["filter"]) or None,
        "partitions": store["partitions"],
        "batches": ", ".join(_span(s) for s in store["batches"]) or None,
        "grows": "yes" if store["growing"] else "no",
        "queries": ", ".join(store["queries"]) or None,
        "rows": number(store["rows"]),
        "bytes": f"{size(store['bytes'])}, {size(store['index_bytes'])} of them indexes",
    }


def _part(part: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(part["partition"]),
        str(part["level"]),
        number(part["rows"]),
        size(part["bytes"]),
        _span(part["batches"]),
    )


def verdict(found: Mapping[str, Any]) -> RenderableType:
    """The result of ``anabranch state verify``."""
    read = f"{number(found['packs'])} packs, {size(found['bytes'])}"
    if not found["problems"]:
        return Text(f"whole: {read}", style="green")
    lines = [f"{p['message']}: {p['remedy']}" for p in found["problems"]]
    return Text("\n".join([f"damaged, of {read}:", *lines]), style="red")


def compacted(found: Mapping[str, Any]) -> RenderableType:
    """The result of ``anabranch state compact``."""
    before, after = number(found["segments_before"]), number(found["segments"])
    return Text(f"{before} segments became {after}, {size(found['bytes'])}")


def merged(found: Mapping[str, Any]) -> RenderableType:
    """The outcome of merging result files."""
    before, after = number(found["before"]), number(found["after"])
    return Text(f"{before} result files became {after}, {size(found['bytes'])}")


def _standing(found: Mapping[str, Any]) -> dict[str, str]:
    return {
        "next batch": str(found["next_batch"]),
        "epoch": f"{found['epoch']} by ruleset {found['ruleset_epoch']}",
        "live": size(found["bytes"]),
        "tables": size(found["table_bytes"]),
        "on disk": f"{size(found['disk_bytes'])} in {number(found['packs'])} packs",
        "written": f"{number(found['write_amplification'])} times what was inserted",
    }


def _of(store: Mapping[str, Any]) -> str:
    if store["kind"] == "stream":
        return f"stream {', '.join(store['streams'])}"
    return f"join of {', '.join(store['members'])}"


def _span(span: Sequence[int]) -> str:
    first, last = span
    return str(first) if first == last else f"{first}–{last}"
