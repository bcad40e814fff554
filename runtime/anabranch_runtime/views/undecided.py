"""Left rows of an outer join whose matches load shedding may have withheld.

It is unknown whether such a row has a match, so it is not emitted. A left row's matches arrive
between its own batch (in which its last member arrives) and the last batch that began before the
watermark of the right input passed the row's deadline. A batch withholds matches if the rank (hash)
of the row's key is not below the batch's ration, a sampling rate. So a row is *undecided* if its
rank is not below the ration of one of these batches, unless a catch-up has computed the batch's
withheld results (``semantics.md``, "Rations").

When the deadline has passed, the ledger beside the results has all these rations, and no later
batch changes them. So a repeated version omits the same rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.rations import Ranking, RationedBatches
from anabranch_contract.plans.ruleset import QuerySpec
from anabranch_contract.queries.expressions import Column
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.index.ranks import WHOLE, limit, ranks
from anabranch_runtime.sinks.ledger import NewEntries

_BOUNDS = np.iinfo(np.int64)


class _Key(NamedTuple):
    """Ranking key of left rows, whose hash is their rank: a column and its key type."""

    column: str
    kind: str


class _Withheld(NamedTuple):
    """The ranks (hashes of a key) whose results a batch has withheld.

    Attributes:
        mark: the watermark of the partner's stream at the start of the batch.
        key: the ranking key; None: left rows lack it, so all of them count as undecided.
        limits: last-arriving alias -> least withheld rank; aliases whose withheld results a
            catch-up has computed are left out.
    """

    mark: int
    key: _Key | None
    limits: dict[str, int]


@dataclass(slots=True)
class Undecided:
    """Finds the undecided left rows of one outer join.

    Attributes:
        query: the inner join that finds the pairs.
        results: the results directory.
    """

    query: QuerySpec
    results: Path
    _entries: NewEntries = field(init=False)
    #: Batch -> ranks whose results it has withheld.
    _withheld: dict[int, _Withheld] = field(init=False, default_factory=dict)
    _by_key: dict[_Key | None, tuple[Ints, Ints, Ints]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._entries = NewEntries(self.results)

    def among(
        self, rows: int, column: Callable[[str], pa.Array], came: Ints, deadlines: Ints
    ) -> NDArray[np.bool_]:
        """Return the mask of undecided left rows; ``rows``: number of left rows.

        Args:
            column: returns a column of the rows by name.
            came: the batches in which the rows' last members arrived.
            deadlines: the rows' deadlines in microseconds; all have passed.
        """
        self._read()
        found = np.zeros(rows, np.bool_)
        for key, (batches, marks, limits) in self._by_key.items():
            low = np.searchsorted(batches, came)
            high = np.searchsorted(marks, deadlines, side="right")
            least = least_between(limits, low, high)
            if key is None:
                found |= low < high
            else:
                ranking = Ranking(((key.column, key.kind),), by_batch=False)
                found |= ranks(ranking, column, rows, 0) >= least
        return found

    def chances(self, rows: int, came: Ints, deadlines: Ints) -> NDArray[np.float64]:
        """Return, per left row, the probability over random ranks that it is not undecided: that
        its rank is below the limits of all its batches. Ranks by different keys are independent.
        Uses the ledger as read by the last call of :meth:`among`."""
        found = np.ones(rows, np.float64)
        for key, (batches, marks, limits) in self._by_key.items():
            if key is None:
                continue
            low = np.searchsorted(batches, came)
            # A left row's own batch may withhold matches of it even after the deadline.
            own = np.searchsorted(batches, came, side="right")
            high = np.maximum(np.searchsorted(marks, deadlines, side="right"), own)
            found *= np.minimum(least_between(limits, low, high), WHOLE) / WHOLE
        return found

    def _read(self) -> None:
        """Read the entries that the ledger of withheld ranks has got since the last call."""
        rationed, made_good = self._entries.rationed(), self._entries.paid()
        if not (rationed or made_good):
            return
        for entry in rationed:
            self._withheld.update(self._of(entry))
        for paid in made_good:
            for batch in range(paid.first, paid.last + 1):
                for query, alias in paid.goals:
                    if query == self.query.id and batch in self._withheld:
                        self._withheld[batch].limits.pop(alias, None)
        self._by_key = self._columns()

    def _columns(self) -> dict[_Key | None, tuple[Ints, Ints, Ints]]:
        """Return ranking key -> three arrays, with an element per batch that has withheld rows:
        batch number (ascending), watermark, least withheld rank."""
        some: dict[_Key | None, list[tuple[int, int, int]]] = defaultdict(list)
        for batch, one in sorted(self._withheld.items()):
            if one.limits:
                some[one.key].append((batch, one.mark, min(one.limits.values())))
        tables = ((key, np.array(rows, np.int64)) for key, rows in some.items())
        return {key: (table[:, 0], table[:, 1], table[:, 2]) for key, table in tables}

    def _of(self, entry: RationedBatches) -> Iterator[tuple[int, _Withheld]]:
        outer, aliases = self.query.outer, {label: a for a, label, _ in self.query.members}
        assert outer is not None
        own = [ration for ration in entry.rations if ration.query == self.query.id]
        if not own:
            return
        left = {name for name, _ in outer.left}
        names = {
            (o.expr.alias, o.expr.name): o.name
            for o in self.query.projection
            if o.name in left and isinstance(o.expr, Column)
        }
        keys = (
            _Key(names[ration.start, name], kind)
            for ration in own
            for name, kind in ration.ranking.columns
            if not ration.ranking.by_batch and (ration.start, name) in names
        )
        limits = {aliases[r.start]: limit(r.share) for r in own}
        mark = entry.watermarks.get(outer.partner, _BOUNDS.min)
        for batch in range(entry.first, entry.last + 1):
            yield batch, _Withheld(mark, next(keys, None), limits)


def least_between(values: Ints, low: Ints, high: Ints) -> Ints:
    """Return the minimum of ``values[low:high]`` for each pair; if empty, the greatest integer.

    >>> least_between(np.array([5, 3, 9]), np.array([0, 2, 1]), np.array([3, 3, 1])).tolist()[:2]
    [3, 9]
    """
    found = np.full(len(low), _BOUNDS.max)
    some = np.flatnonzero(low < high)
    if not len(some):
        return found
    low, high = low[some], high[some]
    first = int(low.min())
    # least[k][i] is the minimum of the 2**k values from i on.
    least = [values[first : int(high.max())]]
    while 2 ** len(least) <= len(least[0]):
        half, known = 2 ** (len(least) - 1), least[-1]
        least.append(np.minimum(known[:-half], known[half:]))
    levels = np.frexp(high - low)[1] - 1
    for level in np.unique(levels):
        here = levels == level
        start, end = low[here] - first, high[here] - first - 2**level
        found[some[here]] = np.minimum(least[level][start], least[level][end])
    return found
