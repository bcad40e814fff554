"""Search for queries by text, stream, state, owner and tags. Pure functions over records.

Searchable text is built once per record, not once per search, since statements are long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anabranch_contract.queries.runs import query_of
from anabranch_service.registry.records import QueryRecord


@dataclass(frozen=True, slots=True)
class ListedQuery:
    """Searchable fields of a query's run.

    Attributes:
        query: id of the query. ``streams``: the streams that it reads.
        words: id, title, owner, tags and statement, in case-folded lines.
    """

    record: QueryRecord
    query: str
    words: str
    streams: frozenset[str]

    @classmethod
    def of(cls, record: QueryRecord) -> ListedQuery:
        """Return the searchable fields of ``record``."""
        query, statement = query_of(record.id), record.sql
        if statement is None:
            statement = json.dumps(record.query, ensure_ascii=False)
        named = (query, record.title, record.owner, *record.tags, statement)
        words = "\n".join(word for word in named if word).casefold()
        return cls(record, query, words, frozenset(a.stream for a in record.normalised.aliases))


def listed(
    records: Iterable[QueryRecord], before: Sequence[ListedQuery] = ()
) -> tuple[ListedQuery, ...]:
    """Return the newest run of each query; input and output are in order of registration.

    Args:
        before: an earlier result, whose entries are reused for unchanged records.
    """
    known = {one.record.id: one for one in before}
    found: dict[str, ListedQuery] = {}
    for record in records:
        if record.waits:
            continue
        one = known.get(record.id)
        # The record of an unchanged query is the same object as before.
        if one is None or one.record is not record:
            one = ListedQuery.of(record)
        found.pop(one.query, None)
        found[one.query] = one
    return tuple(found.values())


@dataclass(frozen=True, slots=True)
class Sought:
    """Search criteria; empty ones match all.

    Attributes:
        text: part of one of :attr:`ListedQuery.words`, ignoring case.
        streams, tags: a query has all of them.
    """

    text: str = ""
    owner: str | None = None
    streams: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def among(self, queries: Iterable[ListedQuery]) -> Iterable[ListedQuery]:
        """Yield the matching queries."""
        text = self.text.casefold()
        for one in queries:
            if (
                text in one.words
                and self.streams <= one.streams
                and self.owner in (None, one.record.owner)
                and self.tags.issubset(one.record.tags)
            ):
                yield one
