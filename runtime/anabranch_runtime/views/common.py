"""Tables of views over equal rows: maintained once, and read by all of them.

Equal views (with equal post-join parts, and equal expressions for their columns) have one table.
Views with equal prefixes (the same grouping, but other aggregates, HAVING, SELECT lists or limits)
have tables over the same groups. Both require the same rows in each round: rows that their queries
share (``task.shared_rows``). A common table requires equal contents. Common groups require equal
contents, too, or aggregates that are sums, from which rows from before a view began are subtracted
(``groups.Earlier``). Both are tried whenever views begin to share rows. Until then, or until a
restart, a view that continues alone (its sink refuses a version, or its rows are not shared) has a
copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from anabranch_contract.queries.views import ViewAggregate
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.tables.groups import GroupReader, Groups, rebuild
from anabranch_runtime.views.kept import KeptView


def join_equal(views: Iterable[KeptView]) -> None:
    """Give equal ``views`` one table, and views with equal prefixes common groups. All of them
    include the same rounds, and get the same rows if their ``sources`` are equal."""
    shareable = [view for view in views if view.meaning is not None]
    alike: dict[Hashable, list[KeptView]] = defaultdict(list)
    for view in shareable:
        alike[view.meaning, view.sources, len(view.table or ())].append(view)
    for some in alike.values():
        _join(list({id(view.table): view for view in some}.values()))
    grouped: dict[tuple[Hashable, ...], dict[int, Groups]] = defaultdict(dict)
    for view in shareable:
        groups = None if view.table is None else view.table.groups
        if groups is not None:
            streams = tuple(sorted(str(label) for _, label, _ in view.query.members))
            key = groups.prefix, groups.deletes, streams, view.sources
            grouped[key][id(groups)] = groups
    for (*_, sources), found in grouped.items():
        _unite(list(found.values()), subtract=bool(sources))


def share(views: Sequence[KeptView], joined: JoinedBatch) -> None:
    """Let ``views``, which include the same rounds, read common tables and groups if they get the
    same rows from this round on, and separate ones if not."""
    before = [view.sources for view in views]
    _part_unequal(views, joined)
    fresh = {v.sources for v, last in zip(views, before, strict=True) if v.sources != last}
    if fresh:
        # Views that have ended get no rows, while they still wait for their last rounds.
        join_equal(v for v in views if v.sources in fresh and v.name in joined)


def _part_unequal(views: Iterable[KeptView], joined: JoinedBatch) -> None:
    """Give copies to views with common tables or groups if their rows differ in this round."""
    tables: dict[int, dict[Hashable, list[KeptView]]] = defaultdict(lambda: defaultdict(list))
    for view in views:
        sources = tuple(joined.sources(view.name))
        view.sources = sources or view.sources
        if view.table is not None:
            tables[id(view.table)][sources].append(view)
    groups: dict[int, dict[Hashable, list[KeptView]]] = defaultdict(lambda: defaultdict(list))
    for classes in tables.values():
        for number, (rows, some) in enumerate(classes.items()):
            first, *equal = some
            if number:
                first.part()
                for view in equal:
                    view.join(first)
            if first.table is not None and first.table.groups is not None:
                groups[id(first.table.groups)][rows].append(first)
    for others in groups.values():
        for apart in list(others.values())[1:]:
            known = [view.table for view in apart if view.table is not None]
            readers = [table.reader for table in known if table.reader is not None]
            rebuild([g for table in known[:1] if (g := table.groups) is not None], readers)


def _join(views: list[KeptView]) -> None:
    """Give one table to all equal ``views`` whose tables have equal contents."""
    found: list[tuple[list[pa.RecordBatch], KeptView]] = []
    for view in views if len(views) > 1 else ():
        assert view.table is not None
        own = view.table.dump()
        same = next((other for known, other in found if _equal(known, own)), None)
        if same is None:
            found.append((own, view))
        else:
            view.join(same)


@dataclass(slots=True)
class _Agreeing:
    """Groups that agree with each other; for each aggregate, groups that have it."""

    groups: list[Groups]
    having: dict[ViewAggregate, Groups] = field(default_factory=dict)

    def takes(self, one: Groups) -> bool:
        """Add ``one`` if it agrees with these groups; return whether it does so."""
        known = {id(g): g for a in one.aggregates if (g := self.having.get(a)) is not None}
        if not all(g.agrees(one) for g in (self.groups[0], *known.values())):
            return False
        self.add(one)
        return True

    def add(self, one: Groups) -> None:
        """Add groups, which must agree with the present ones."""
        if one not in self.groups:
            self.groups.append(one)
        for aggregate in one.aggregates:
            self.having.setdefault(aggregate, one)

    @property
    def readers(self) -> list[GroupReader]:
        """The readers of all of the groups."""
        return [reader for groups in self.groups for reader in groups.readers]

    @property
    def sums(self) -> list[GroupReader]:
        """Readers of sums that are not rounded, from which earlier rows can be subtracted."""
        if any(not one.subtracts or one.rounds for one in self.groups):
            return []
        return [r for r in self.readers if all(a.is_linear for a in r.aggregates)]


def _unite(some: list[Groups], *, subtract: bool) -> None:
    """Give common groups to readers whose groups agree. If ``subtract``, readers of sums get the
    groups with the most readers, even if these don't agree with their own."""
    found = list[_Agreeing]()
    for one in some:
        if not any(known.takes(one) for known in found):
            found.append(_Agreeing([one], dict.fromkeys(one.aggregates, one)))
    main = max(found, key=lambda one: (len(one.readers) > len(one.sums), len(one.readers)))
    others = [one for one in found if one is not main]
    readers, later = main.readers, list[GroupReader]()
    if subtract and main.groups[0].subtracts and not any(one.rounds for one in main.groups):
        later = [reader for one in others for reader in one.sums]
    if len(main.groups) == 1 and all(a in main.having for r in later for a in r.aggregates):
        main.groups[0].attach(later)
    else:
        rebuild(main.groups, [*readers, *later])
    for other in others:
        if len(other.groups) > 1:
            rebuild(other.groups, other.readers)


def _equal(one: list[pa.RecordBatch], other: list[pa.RecordBatch]) -> bool:
    return len(one) == len(other) and all(
        a.equals(b, check_metadata=True) for a, b in zip(one, other, strict=True)
    )
