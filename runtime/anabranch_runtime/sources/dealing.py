"""Assignment of a batch's pieces to tasks, so that all are expected to take equally long.

Tasks wait for the slowest at every exchange: when arrivals are taken in, and after their probes. A
tuple of one stream may cost many times as much as one of another, because it is sent down other
probe trees. So a piece has two weights, the time to take in its rows and the time of their probes,
and both are to be equal. If only their sum were, one task would probe for long while another reads
for long, and each would wait for the other.

The heaviest piece comes first. Each goes to the task whose loads, times its weights, are least:
there the sum of the squares of all loads grows least. Where all pieces have one weight only this is
Graham's LPT rule. Tasks that start with nothing then get no more than ``4/3 - 1/(3 tasks)`` times
the slowest load of the best assignment. A task with assigned pieces has at most one piece more than
the mean.

**Sites.** A stream may be read at a site, which has some of the hosts. Where tasks run is Spark's
choice and known once they do, so the tasks repeat the assignment of such a batch, all alike: first
pieces with a site, among the tasks there, and then the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch_runtime.sources.feed import Piece

#: Seconds that it takes to read, check and store a tuple: phases ``read`` and ``store`` of all
#: tasks, divided by the tuples. 0.4e-6 where streams have two columns, 0.8e-6 for TPC-H at SF 1.
TAKEN_IN = 6e-7
#: An assignment is uneven if batches take this factor longer than with equal loads.
UNEVEN = 1.1
#: Fewer rows are not divided any finer: the fixed cost of a piece would exceed the gain.
WORTH = 1 << 14


class PieceCost(NamedTuple):
    """Seconds between two exchanges: ``taken`` until tuples are stored, ``probed`` after that."""

    taken: float = 0.0
    probed: float = 0.0


def prices(pieces: Sequence[Piece], costs: Mapping[str, float]) -> dict[str, float]:
    """Stream -> seconds of probing per row, for each stream that ``pieces`` have rows of.

    Args:
        pieces: all of a batch's.
        costs: the same of streams where it is known. Of others it is what rows of known streams
            among ``pieces`` take on average, and 0 where none of those is known: then pieces weigh
            their rows.
    """
    rows: dict[str, int] = defaultdict(int)
    for piece in pieces:
        rows[piece.stream] += piece.rows
    known = {stream: count for stream, count in rows.items() if stream in costs}
    total = sum(known.values())
    mean = sum(count * costs[stream] for stream, count in known.items()) / total if total else 0.0
    return {stream: costs.get(stream, mean) for stream in rows}


def weigh(pieces: Sequence[Piece], price: Mapping[str, float]) -> list[PieceCost]:
    """The weight of each piece; ``price``: stream -> seconds of probing per row."""
    return [PieceCost(TAKEN_IN * p.rows, price[p.stream] * p.rows) for p in pieces]


def deal(
    weights: Sequence[PieceCost],
    loads: Sequence[PieceCost],
    allowed: Sequence[Collection[int]] | None = None,
) -> list[int]:
    """The task of each weight: a function of its arguments alone.

    Args:
        weights: of the pieces, in any order; of equal ones the first is assigned first.
        loads: present load of each task; at least one task.
        allowed: the tasks that each weight may go to, at least one; None: to any.
    """
    loads, found = list(loads), [0] * len(weights)
    for number in sorted(range(len(weights)), key=lambda n: -sum(weights[n])):
        weight = weights[number]
        task = min(
            range(len(loads)) if allowed is None else allowed[number],
            key=lambda t: weight.taken * loads[t].taken + weight.probed * loads[t].probed,
        )
        loads[task] = together((loads[task], weight))
        found[number] = task
    return found


def pieces_of(shares: Sequence[Sequence[Piece]], task: int, tasks: int) -> list[Piece]:
    """Pieces of ``task``: the ``i``-th of ``n`` has the shares ``i``, ``i + n`` and so on."""
    return [piece for share in shares[task::tasks] for piece in share]


@dataclass(frozen=True, slots=True)
class Sites:
    """Sites at which streams are to be read.

    Attributes:
        of: stream -> its site; streams without one can be read anywhere.
        price: stream -> seconds of probing per row, of all streams of the batch.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    price: Mapping[str, float] = field(default_factory=dict)

    def share(self, shares: Sequence[Sequence[Piece]], at: Sequence[str], task: int) -> list[Piece]:
        """Pieces of ``task`` in a batch.

        Args:
            shares: as assigned without regard to sites.
            at: the site of each task. A stream whose site has none is read anywhere.
        """
        if set(at).isdisjoint(self.of.values()):
            return pieces_of(shares, task, len(at))
        pieces = [piece for share in shares for piece in share]
        there: dict[str, list[int]] = defaultdict(list)
        for number, site in enumerate(at):
            there[site].append(number)
        bound = [self.of.get(piece.stream, "") in there for piece in pieces]
        loads, found = [PieceCost()] * len(at), []
        for is_bound in (True, False):
            some = [p for p, is_so in zip(pieces, bound, strict=True) if is_so == is_bound]
            weights = weigh(some, self.price)
            allowed = [there[self.of[p.stream]] for p in some] if is_bound else None
            tasks = deal(weights, loads, allowed)
            found += [piece for piece, t in zip(some, tasks, strict=True) if t == task]
            for weight, t in zip(weights, tasks, strict=True):
                loads[t] = together((loads[t], weight))
        return found


def together(weights: Sequence[PieceCost]) -> PieceCost:
    """The weight of them all."""
    return PieceCost(sum(w.taken for w in weights), sum(w.probed for w in weights))


def is_uneven(
    weights: Sequence[PieceCost], tasks: Sequence[int], loads: Sequence[PieceCost]
) -> bool:
    """Whether a batch takes much longer than with equal loads, with ``weights`` assigned to
    ``tasks`` that had ``loads`` before.
    """
    totals = list(loads)
    for weight, task in zip(weights, tasks, strict=True):
        totals[task] = together((totals[task], weight))
    slowest = max(w.taken for w in totals) + max(w.probed for w in totals)
    return slowest * len(totals) > UNEVEN * sum(together(totals))
