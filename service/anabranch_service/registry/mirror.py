"""In-process copies of Redis hashes of records, refreshed incrementally from a journal of changes.

Every write of a record also appends its name to the journal, a Redis Stream, in the same
transaction. So a read sees all writes acknowledged before it, from any process.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar, cast

from redis.asyncio import Redis

_T = TypeVar("_T")

#: Journal entries fetched per read.
PAGE = 1000


class Mirror(Generic[_T]):
    """In-process copy of one hash: field (name) -> record.

    Attributes:
        version: changes whenever a record does.
    """

    def __init__(
        self,
        redis: Redis,
        journal: str,
        key: str,
        kind: str,
        read: Callable[[str, str], _T | None],
        order: Callable[[_T], int] | None = None,
        keys: Callable[[_T], Iterable[str]] = lambda _: (),
    ) -> None:
        """``kind``: the journal's name for the hash. ``read``: name and text -> record (None:
        unreadable). ``order``: sort key of a record, or None (unsorted). ``keys``: the keys of a
        record in the index."""
        self._redis, self._journal, self._key, self._kind = redis, journal, key, kind
        self._read, self._order, self._keys = read, order, keys
        #: Id of the newest change applied to ``_found``; None before the first read.
        self._upto: str | None = None
        self._texts: dict[str, str] = {}
        self._found: dict[str, _T] = {}
        self._index: dict[str, dict[str, _T]] = {}
        #: Whether a caller may have a reference to these, so that changes need a copy.
        self._lent = False
        self._lock = asyncio.Lock()
        self.version = 0

    async def all(self) -> Mapping[str, _T]:
        """Return the current records by name, sorted by ``order``, as an immutable mapping."""
        return (await self.indexed())[0]

    async def indexed(self) -> tuple[Mapping[str, _T], Mapping[str, Mapping[str, _T]]]:
        """Return :meth:`all`, and the same records by key, each key's sorted by ``order``."""
        async with self._lock:
            await self._look()
            self._lent = True
            return MappingProxyType(self._found), MappingProxyType(self._index)

    async def count(self) -> int:
        """Return the current number of records."""
        async with self._lock:
            await self._look()
            return len(self._found)

    async def _look(self) -> None:
        if self._upto is None or not await self._follow(self._upto):
            await self._load()

    async def _load(self) -> None:
        """Read the whole hash. Without a journal, the next call does so again."""
        newest = await cast("Any", self._redis.xrevrange(self._journal, count=1))
        texts = await cast("Any", self._redis.hgetall(self._key))
        self._take(texts, whole=True)
        self._upto = newest[0][0] if newest else None

    async def _follow(self, upto: str) -> bool:
        """Apply the changes after journal entry ``upto``; False if that entry was trimmed."""
        names: dict[str, None] = {}
        while True:
            page = await cast("Any", self._redis.xrange(self._journal, min=upto, count=PAGE))
            if not page or page[0][0] != upto:
                return False
            for _, entry in page[1:]:
                names |= dict.fromkeys(json.loads(entry.get(self._kind, "[]")))
            upto = page[-1][0]
            if len(page) < PAGE:
                break
        if names:
            texts = await cast("Any", self._redis.hmget(self._key, list(names)))
            self._take(dict(zip(names, texts, strict=True)), whole=False)
        self._upto = upto
        return True

    def _take(self, texts: Mapping[str, str | None], *, whole: bool) -> None:
        """Apply new ``texts`` (None: deleted record); ``whole``: they are the whole hash."""
        gone = {name for name in self._texts if name not in texts} if whole else set()
        gone |= {name for name, text in texts.items() if text is None}
        changed = {n: t for n, t in texts.items() if t is not None and self._texts.get(n) != t}
        gone &= self._texts.keys()
        if not changed and not gone:
            return
        if self._lent:
            self._found, self._index = self._found.copy(), self._index.copy()
        self._lent = False
        found, read = self._found, dict[str, _T]()
        for name, text in changed.items():
            one = self._read(name, text)
            if one is not None:
                read[name] = one
        for name in (*gone, *changed):
            if name in found:
                self._unindex(name, found[name])
            if name not in read:
                found.pop(name, None)
        for name, one in read.items():
            for key in self._keys(one):
                known = self._index.get(key, {}).copy()
                self._index[key] = _merged(known, {name: one}, self._order)
        self._found = _merged(found, read, self._order)
        for name in gone:
            del self._texts[name]
        self._texts |= changed
        self.version += 1

    def _unindex(self, name: str, record: _T) -> None:
        for key in self._keys(record):
            left = {other: one for other, one in self._index.pop(key).items() if other != name}
            if left:
                self._index[key] = left


def _merged(
    found: dict[str, _T], read: Mapping[str, _T], order: Callable[[_T], int] | None
) -> dict[str, _T]:
    """Merge the records ``read`` into the sorted ``found``; sort again only if necessary."""
    if order is None:
        found |= read
        return found

    def place(item: tuple[str, _T]) -> int:
        return order(item[1])

    for name, one in read.items():
        if name in found and order(found[name]) != order(one):
            del found[name]
    last = order(found[next(reversed(found))]) if found else None
    new = [order(one) for name, one in read.items() if name not in found]
    found |= dict(sorted(read.items(), key=place))
    if last is None or all(number > last for number in new):
        return found
    return dict(sorted(found.items(), key=place))
