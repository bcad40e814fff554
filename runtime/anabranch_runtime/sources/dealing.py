"""Assignment of a batch's pieces to tasks, so that all are expected to take equally long.

Tasks wait for the slowest task at every exchange: after reading and storing arrivals, and after
their probes. A tuple of one stream may cost many times as much as a tuple of another, because it
takes different probe orders. So a piece has two weights, the time to read and store its rows and
the time of their probes, and both are balanced over tasks. If only the sums were balanced, one task
might read for long and another probe for long, and each would wait for the other.

Pieces are assigned in descending order of weight, each to the task for which the scalar product of
the task's loads and the piece's weights is least, so that the sum of the squares of all loads grows
least. If all pieces have one weight only, this is Graham's LPT rule. Then, if tasks start without
load, the greatest load is at most ``4/3 - 1/(3 tasks)`` times the greatest load of the best
assignment, and a task's load exceeds the mean by at most one piece.

**Sites.** A stream may have a site, a group of hosts, at which it should be read. Spark chooses
the tasks' hosts, and they are known only when the tasks run. So all tasks of such a batch repeat
the same assignment: first pieces with a site among the site's tasks, then the other pieces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch_runtime.sources.feed import Piece

#: Seconds to read, check and store a tuple. Measured, as sum of the tasks' phases ``read`` and
#: ``store``: 0.4e-6 for streams of two columns, 0.8e-6 for TPC-H at SF 1.
TAKEN_IN = 6e-7
#: An assignment is uneven if the batch takes more than this factor longer than with equal loads.
UNEVEN = 1.1
#: Least rows of a batch for more pieces: for fewer rows, the pieces' fixed costs exceed the gain.
WORTH = 1 << 14


class PieceCost(NamedTuple):
    """Costs of a piece, in seconds: ``taken`` to read and store its tuples, ``probed`` to probe."""

    taken: float = 0.0
    probed: float = 0.0


def prices(pieces: Sequence[Piece], costs: Mapping[str, float]) -> dict[str, float]:
    """Return seconds of probing per row for each stream of ``pieces``.

    Args:
        pieces: all pieces of a batch.
        costs: the known seconds by stream. Other streams have the mean over the rows of known
            streams among ``pieces``; 0 if none is known, so that only the number of rows counts.
    """
    rows: dict[str, int] = defaultdict(int)
    for piece in pieces:
        rows[piece.stream] += piece.rows
    known = {stream: count for stream, count in rows.items() if stream in costs}
    total = sum(known.values())
    mean = sum(count * costs[stream] for stream, count in known.items()) / total if total else 0.0
    return {stream: costs.get(stream, mean) for stream in rows}


def weigh(pieces: Sequence[Piece], price: Mapping[str, float]) -> list[PieceCost]:
    """Return the cost of each piece of input; ``price``: stream -> seconds of probing per row."""
    return [PieceCost(TAKEN_IN * p.rows, price[p.stream] * p.rows) for p in pieces]


def deal(
    weights: Sequence[PieceCost],
    loads: Sequence[PieceCost],
    allowed: Sequence[Collection[int]] | None = None,
) -> list[int]:
    """Return each piece's task (see the module docstring), as a function of the arguments alone.

    Args:
        weights: weights of the pieces, in any order; equal ones are assigned in this order.
        loads: present load of each task; at least one task.
        allowed: per weight, the tasks to which it may be assigned, at least one; None: all tasks.
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
    """Return the input pieces of ``task``: of the shares ``task``, ``task + tasks``, ..."""
    return [piece for share in shares[task::tasks] for piece in share]


@dataclass(frozen=True, slots=True)
class Sites:
    """Sites (groups of hosts) at which streams are to be read, and the streams' costs.

    Attributes:
        of: stream -> its site; streams without a site can be read anywhere.
        price: stream -> seconds of probing per row, for all streams of the batch.
    """

    of: Mapping[str, str] = field(default_factory=dict)
    price: Mapping[str, float] = field(default_factory=dict)

    def share(self, shares: Sequence[Sequence[Piece]], at: Sequence[str], task: int) -> list[Piece]:
        """Return the input pieces of ``task`` in a batch.

        Args:
            shares: the assignment without regard to sites.
            at: the site of each task. A stream is read anywhere if no task is at its site.
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


@dataclass(frozen=True, slots=True)
class InputShares:
    """The input of a batch, assigned to tasks.

    Attributes:
        shares: per task, its pieces of the sources that the runtime reads itself.
        sites: the sites at which streams should be read.
        redefined: streams registered with other columns than the ruleset's; their tuples are
            counted and skipped.
    """

    shares: tuple[tuple[Piece, ...], ...] = ()
    sites: Sites = field(default_factory=Sites)
    redefined: frozenset[str] = frozenset()


def together(weights: Sequence[PieceCost]) -> PieceCost:
    """Return the sum of the costs of pieces."""
    return PieceCost(sum(w.taken for w in weights), sum(w.probed for w in weights))


def is_uneven(
    weights: Sequence[PieceCost], tasks: Sequence[int], loads: Sequence[PieceCost]
) -> bool:
    """Whether a batch takes much longer than with equal loads: ``weights`` of pieces, the ``tasks``
    to which they are assigned, and the tasks' ``loads`` before."""
    totals = list(loads)
    for weight, task in zip(weights, tasks, strict=True):
        totals[task] = together((totals[task], weight))
    slowest = max(w.taken for w in totals) + max(w.probed for w in totals)
    return slowest * len(totals) > UNEVEN * sum(together(totals))
