"""Tables of equal views over equal rows: maintained once, and read by all of them.

Views are equal if their post-join parts and the expressions below them are. They have one table
while their contents are equal and each round has the same rows for all: rows that their queries
share (``task.shared_rows``). A view that goes on alone (its sink refuses a version, its rows are
its own) gets a copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping

import pyarrow as pa

from anabranch_runtime.sinks.joined_rows import JoinedBatch
from anabranch_runtime.views.kept import KeptView


def join_equal(views: Mapping[str, KeptView], fresh: Collection[str]) -> None:
    """Give the views among ``fresh`` that are equal, with equal tables, one table."""
    alike: dict[Hashable, list[KeptView]] = defaultdict(list)
    for name in fresh:
        view = views.get(name)
        if view is not None and view.meaning is not None:
            alike[view.meaning].append(view)
    for some in alike.values():
        found: list[tuple[list[pa.RecordBatch], KeptView]] = []
        for view in some if len(some) > 1 else ():
            assert view.table is not None
            own = view.table.dump()
            same = next((other for known, other in found if _equal(known, own)), None)
            if same is None:
                found.append((own, view))
            else:
                view.join(same)


def part_unequal(views: Iterable[KeptView], joined: JoinedBatch) -> None:
    """Give views with a common table copies of it where this round has other rows for them."""
    readers: dict[int, list[KeptView]] = defaultdict(list)
    for view in views:
        if view.table is not None:
            readers[id(view.table)].append(view)
    for some in readers.values():
        for view in some[1:]:
            if joined.sources(view.name) != joined.sources(some[0].name):
                view.part()


def _equal(one: list[pa.RecordBatch], other: list[pa.RecordBatch]) -> bool:
    return len(one) == len(other) and all(
        a.equals(b, check_metadata=True) for a, b in zip(one, other, strict=True)
    )
