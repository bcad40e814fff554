"""Tables of views over equal rows: maintained once, and read by all of them.

Equal views (post-join parts, and the expressions below them, are equal) have one table. Views with
equal prefixes (the same grouping, other aggregates, HAVING, SELECT lists or limits) have tables
over the same groups. Both need equal contents, and the same rows in each round: rows that their
queries share (``task.shared_rows``). A view that goes on alone (its sink refuses a version, its
rows are its own) gets a copy, and reads common groups again once they are equal to its own, after
a restart or when further views begin.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

import pyarrow as pa

from anabranch_contract.queries.views import ViewAggregate
from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.tables.groups import Groups, rebuild
from anabranch_runtime.views.kept import KeptView


def join_equal(views: Iterable[KeptView]) -> None:
    """Give ``views``, which include the same rounds, one table where they are equal, and common
    groups where their prefixes are.
    """
    shareable = [view for view in views if view.meaning is not None]
    alike: dict[Hashable, list[KeptView]] = defaultdict(list)
    for view in shareable:
        alike[view.meaning, view.sources].append(view)
    for some in alike.values():
        _join(list({id(view.table): view for view in some}.values()))
    grouped: dict[Hashable, dict[int, Groups]] = defaultdict(dict)
    for view in shareable:
        groups = None if view.table is None else view.table.groups
        if groups is not None:
            streams = tuple(sorted(str(label) for _, label, _ in view.query.members))
            key = groups.prefix, groups.deletes, streams, view.sources
            grouped[key][id(groups)] = groups
    for found in grouped.values():
        _unite(list(found.values()))


def part_unequal(views: Iterable[KeptView], joined: JoinedBatch) -> None:
    """Give views with common tables or groups copies where this round has other rows for them."""
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
    """Give the views among equal ones that have equal tables one table."""
    found: list[tuple[list[pa.RecordBatch], KeptView]] = []
    for view in views if len(views) > 1 else ():
        assert view.table is not None
        own = view.table.dump()
        same = next((other for known, other in found if _equal(known, own)), None)
        if same is None:
            found.append((own, view))
        else:
            view.join(same)


def _unite(some: list[Groups]) -> None:
    """Give the readers of groups that agree common groups."""
    found: list[tuple[list[Groups], dict[ViewAggregate, Groups]]] = []
    for one in some:
        for same, having in found:
            known = {id(g): g for a in one.aggregates if (g := having.get(a)) is not None}
            if all(g.agrees(one) for g in (same[0], *known.values())):
                same.append(one)
                break
        else:
            found.append(([one], {}))
            same, having = found[-1]
        for aggregate in one.aggregates:
            having.setdefault(aggregate, one)
    for same, _ in found:
        if len(same) > 1:
            rebuild(same, [reader for groups in same for reader in groups.readers])


def _equal(one: list[pa.RecordBatch], other: list[pa.RecordBatch]) -> bool:
    return len(one) == len(other) and all(
        a.equals(b, check_metadata=True) for a, b in zip(one, other, strict=True)
    )
