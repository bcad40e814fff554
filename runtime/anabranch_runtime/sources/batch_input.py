"""The input of a batch from the sources that the runtime reads itself, without unreadable parts.

Planning fixes the offsets between which a batch reads each feed, and divides this input into pieces
for the tasks. If a task can't read a piece, the attempt is discarded and the batch runs again
without the piece, so each piece is read completely or not at all:

* The feed is *held* at the piece (``Held``): nothing from the piece on is read. Later batches skip
  the feed, except for attempts (trials, ``TRIALS``) to read it again from the held offset on.
* Or, if the stream's policy is to skip unreadable input, the batch leaves out all of its input from
  that file, however it was divided, and records this. If entries of a Redis Stream are lost, the
  batch reads the other entries and records the number of lost ones.

The outcome is committed with the batch. It is written to the journal before any result of the batch
is published, so that a repeated batch leaves out the same input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from anabranch_contract.connectors.sources import OnLoss
from anabranch_contract.plans.batch_reads import ReadRange, Unit
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.intake import UnreadPiece
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import Stream
from anabranch_runtime.sources.dealing import (
    WORTH,
    PieceCost,
    Sites,
    deal,
    is_uneven,
    prices,
    together,
    weigh,
)
from anabranch_runtime.sources.feed import PATIENT, Feed, Piece, PieceError, UnreadNote
from anabranch_runtime.sources.planned import TRIALS, PlannedSource
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.state.unread import FeedState, Held, UnreadInput

Shares = tuple[tuple[Piece, ...], ...]


#: Maximum number of rows of a batch that one task reads alone: each step of a probe order has a
#: fixed cost per task, which exceeds the cost of so few rows.
FEW = 1 << 11
#: Number of pieces per feed and task if one piece for each task is uneven.
FINER = 4

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that a pipeline reads at present.

    Attributes:
        planned: the planned sources by name.
        tasks: number of tasks that read them.
        records: the registered streams. ``feeds``: the ids of their feeds.
        errors: stream -> error that its source raised when it was opened.
    """

    planned: Mapping[str, PlannedSource]
    tasks: int
    records: tuple[StreamRecord, ...] = ()
    feeds: frozenset[str] = frozenset()
    errors: Mapping[str, str] = field(default_factory=dict)
    #: The ruleset in the last call of :meth:`redefined`, and the result.
    _compared: list[tuple[Ruleset, frozenset[str]]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    def redefined(self, ruleset: Ruleset) -> frozenset[str]:
        """Return the streams whose registered columns differ from the columns in ``ruleset``."""
        if not self._compared or self._compared[0][0] is not ruleset:
            known = {r.name: r for r in self.records}
            found = frozenset(
                s.name
                for s in ruleset.streams
                if s.name in known and not _is_same(known[s.name], s)
            )
            self._compared[:] = [(ruleset, found)]
        return self._compared[0][1]

    def gone(self, feeds: Mapping[str, FeedState]) -> frozenset[str]:
        """Return the feeds whose stream has been deleted, or registered again."""
        return frozenset(
            name
            for name, feed in feeds.items()
            if name not in self.feeds and feed.stream not in self.errors
        )


@dataclass(slots=True)
class _FeedInput:
    """A batch's input from one feed: ``start`` to ``upto``, without ``skipped`` sources."""

    feed: Feed
    known: FeedState
    parts: int
    batch: int
    start: Any
    upto: Any
    pieces: list[Piece] = field(default_factory=list)
    held: Held | None = None
    #: Source (file or key) that the batch leaves out -> error for which it does.
    skipped: dict[str, PieceError] = field(default_factory=dict)
    #: Number of a piece that lacks some entries -> the error to record.
    missing: dict[int, PieceError] = field(default_factory=dict)
    #: Columns to read if the stream's columns have changed, by the ruleset; optional columns.
    columns: tuple[tuple[str, str], ...] = ()
    optional: frozenset[str] = frozenset()

    def plan(self) -> None:
        """Divide the feed's input between the offsets into pieces."""
        self.pieces = self.feed.pieces(self.start, self.upto, self.parts)
        if self.columns:
            self.pieces = [
                replace(piece, columns=self.columns, optional=self.optional)
                for piece in self.pieces
            ]
        self.missing = {}

    @property
    def readable(self) -> list[Piece]:
        """The pieces of the feed that tasks are to read."""
        return [p for p in self.pieces if p.gone is None and p.source not in self.skipped]

    @property
    def _trials(self) -> int:
        return 0 if self.known.held is None else self.known.held.trials

    def refuse(self, failed: Sequence[tuple[Piece, PieceError]]) -> None:
        """Skip ``failed`` pieces permanently, or hold the feed at the first one, to retry it."""
        wait = [(p, why) for p, why in failed if not self._is_given_up(why)]
        if not wait:
            self.skipped |= {p.source: why for p, why in failed}
            return
        piece, why = min(wait, key=lambda found: found[0].number)
        self.upto = self.feed.before(self.upto, [p for p, _ in wait])
        # Input after the offset at which the feed is held is read later, so it is not skipped.
        self.skipped = {}
        self.plan()
        again = self.known.held is not None and self.known.held.start == self.upto
        trials = self._trials + 1 if again else 1
        self.held = Held(self.upto, _record([piece], why, self.batch), why.remedy, trials)

    def _is_given_up(self, why: PieceError) -> bool:
        if self.feed.on_loss is OnLoss.STOP:
            return False
        return self._trials + 1 >= PATIENT.get(why.code, 0)

    def unread(self) -> list[UnreadPiece]:
        """Return the records of the input that this batch skips permanently."""
        found = [_record([p], p.gone, self.batch) for p in self.pieces if p.gone is not None]
        for source, why in self.skipped.items():
            pieces = [p for p in self.pieces if p.source == source and p.gone is None]
            if pieces:
                found.append(_record(pieces, why, self.batch))
        numbered = {p.number: p for p in self.pieces}
        return found + [_record([numbered[n]], w, self.batch) for n, w in self.missing.items()]

    @property
    def left_out(self) -> UnreadInput | None:
        """Input that the batch leaves out, as a record for the journal; None if there is none."""
        if self.held is None and not self.skipped:
            return None
        skipped = {source: (why.code, why.message) for source, why in self.skipped.items()}
        return UnreadInput(self.upto, self.held, skipped)


class BatchInput:
    """The input of one batch; attempts at the batch show which pieces can't be read."""

    def __init__(
        self,
        sources: Sources,
        feeds: Mapping[str, FeedState],
        batch: int,
        before: Offsets | None,
        upto: Offsets,
        left_out: Mapping[str, UnreadInput] | None = None,
        costs: Mapping[str, float] | None = None,
        streams: Iterable[Stream] = (),
    ) -> None:
        """Plan the batch's input.

        Args:
            sources: the present sources.
            feeds: states of the feeds.
            batch: the batch's number.
            before, upto: the offsets before and after the batch.
            left_out: feed -> input that an earlier attempt has left out, from the journal.
            costs: stream -> seconds of probing per tuple, also from the journal, so that repeated
                batches assign equal pieces to equal tasks.
            streams: the streams of the batch's ruleset, whose columns are read.
        """
        self._sources, self._known, self._tasks = sources, feeds, sources.tasks
        self._batch = batch
        self._costs = costs or {}
        self._fixed: list[list[Piece]] = [[] for _ in range(sources.tasks)]
        self._feeds: dict[str, _FeedInput] = {}
        #: Ids of the feeds for which the batch was planned.
        self._planned = set[str]()
        specs = {str(stream.name): stream for stream in streams}
        start, end = {} if before is None else before.sources, upto.sources
        for name, reader in sources.planned.items():
            if name not in end:
                continue
            first, last = start.get(name, {}), end[name]
            for mine, part in zip(self._fixed, reader.shares(first, last), strict=True):
                mine += part
            for feed_id, feed in reader.feeds_of(last).items():
                self._planned.add(feed_id)
                known = feeds.get(feed_id, FeedState(feed.record.name))
                begin = first.get(feed_id)
                if known.held is not None:
                    tried, wanted = (o.get(TRIALS, {}).get(feed_id, 0) for o in (first, last))
                    if tried == wanted:
                        continue
                    begin = known.held.start
                if feed_id not in last or begin == last[feed_id]:
                    continue
                found = _FeedInput(feed, known, sources.tasks, batch, begin, last[feed_id])
                found.columns, found.optional = _evolved(feed.record, specs.get(feed.record.name))
                earlier = (left_out or {}).get(feed_id)
                if earlier is not None:
                    found.upto, found.held = earlier.upto, earlier.held
                    found.skipped = {s: PieceError(*why) for s, why in earlier.skipped.items()}
                found.plan()
                self._feeds[feed_id] = found
        self._divide()
        self._number()

    def _divide(self) -> None:
        """Divide feeds into more pieces if they are unevenly assigned and the batch is large."""
        pieces = self._readable
        if sum(p.rows for p in pieces) < WORTH:
            return
        weights, loads = self._weigh(pieces)
        if is_uneven(weights, deal(weights, loads), loads):
            for found in self._feeds.values():
                found.parts = FINER * self._tasks
                found.plan()

    @property
    def _readable(self) -> list[Piece]:
        return [p for found in self._feeds.values() for p in found.readable]

    def _weigh(self, pieces: list[Piece]) -> tuple[list[PieceCost], list[PieceCost]]:
        """Return the weight of each of ``pieces``, and tasks' loads from recordings' pieces."""
        price = self._price(pieces)
        loads = [together(weigh(share, price)) for share in self._fixed]
        return weigh(pieces, price), loads

    def _price(self, pieces: list[Piece]) -> dict[str, float]:
        """Return stream -> seconds of probing per row, from ``pieces`` and recordings' pieces."""
        return prices([*pieces, *(p for share in self._fixed for p in share)], self._costs)

    def _number(self) -> None:
        number = 0
        for found in self._feeds.values():
            found.pieces = [replace(p, number=number + i) for i, p in enumerate(found.pieces)]
            number += len(found.pieces)

    def shares(self) -> Shares:
        """Assign pieces to tasks so that all tasks are expected to take equally long. Up to
        :data:`FEW` rows are all assigned to one task, which is another one in each batch."""
        pieces, shares = self._readable, [list(share) for share in self._fixed]
        every = [*(piece for share in shares for piece in share), *pieces]
        if sum(piece.rows for piece in every) <= FEW:
            alone = self._batch % self._tasks
            return tuple(tuple(every) if task == alone else () for task in range(self._tasks))
        for piece, task in zip(pieces, deal(*self._weigh(pieces)), strict=True):
            shares[task].append(piece)
        return tuple(map(tuple, shares))

    def sites(self) -> Sites:
        """Return the sites where streams should be read, and the seconds of probing per row."""
        given = {record.name: record.site for record in self._sources.records if record.site}
        return Sites(given, self._price(self._readable)) if given else Sites()

    def accept(self, notes: Iterable[UnreadNote]) -> bool:
        """Record the pieces that tasks could not read, and return whether the attempt is valid.

        If it is not valid, the batch must run again with the new :meth:`shares`.
        """
        failed: dict[str, list[tuple[Piece, PieceError]]] = {}
        pieces = {p.number: (i, p) for i, f in self._feeds.items() for p in f.pieces}
        for found in self._feeds.values():
            found.missing = {}
        for note in notes:
            why = note.why
            feed_id, piece = pieces[note.piece]
            found = self._feeds[feed_id]
            if why.missing is not None and found.feed.on_loss is OnLoss.SKIP:
                found.missing[piece.number] = why
            else:
                failed.setdefault(feed_id, []).append((piece, why))
        for feed_id, refused in failed.items():
            for piece, why in refused:
                _LOG.warning("input can't be read", stream=piece.stream, reason=why.message)
            self._feeds[feed_id].refuse(refused)
        self._number()
        return not failed

    def ranges(self) -> tuple[ReadRange, ...]:
        """Return the input that the batch reads, for the ledger."""
        found: list[ReadRange] = []
        fixed = sorted((p for share in self._fixed for p in share), key=_order)
        for piece in (*fixed, *sorted(self._readable, key=lambda p: p.number)):
            unit = Unit(piece.unit)
            one = ReadRange(piece.stream, piece.source, unit, piece.first, piece.last)
            together = found[-1].joined(one) if found else None
            found[-1:] = [together] if together is not None else [*found[-1:], one]
        return tuple(found)

    @property
    def left_out(self) -> dict[str, UnreadInput]:
        """Feed -> its input that the batch leaves out, for the journal."""
        found = {name: f.left_out for name, f in self._feeds.items()}
        return {name: left for name, left in found.items() if left is not None}

    def feeds(self) -> dict[str, FeedState]:
        """Return feed -> its state after the batch."""
        feeds = dict(self._known)
        for name in self._sources.gone(feeds) - self._planned:
            dropped = feeds.pop(name)
            if dropped.held is not None:
                _LOG.warning("held input dropped", stream=dropped.stream, **_said(dropped.held))
        for name, found in self._feeds.items():
            pieces = found.unread()
            for piece in pieces:
                _LOG.warning("input recorded as unread", stream=found.known.stream, piece=piece)
            state = replace(
                found.known, held=found.held, unread=found.known.unread.and_also(pieces)
            )
            if state.held is not None and state.held != found.known.held:
                _LOG.warning("stream held", stream=state.stream, **_said(state.held))
            if state == FeedState(state.stream):
                feeds.pop(name, None)
            else:
                feeds[name] = state
        return feeds


def _order(piece: Piece) -> tuple[str, int]:
    """Return the sort key of a recording's piece: stream and first row."""
    assert isinstance(piece.first, int)
    return piece.stream, piece.first


def _is_same(record: StreamRecord, spec: Stream) -> bool:
    same = record.event_time == spec.event_time and record.registration == spec.registration
    first = frozenset(record.to_stream().first_columns)
    return same and record.changes == spec.changes and first == frozenset(spec.first_columns)


def _evolved(
    record: StreamRecord, spec: Stream | None
) -> tuple[tuple[tuple[str, str], ...], frozenset[str]]:
    """Return names and types of a stream's columns to read, and the columns that input may lack.
    Both are taken from the ruleset's ``spec``, or from the registration if the ruleset does not
    have the stream, and are empty if no column was added, widened or dropped."""
    known = record if spec is None else spec
    optional = frozenset(name for name, _ in (*known.added, *record.dropped))
    if not any((*optional, record.added, record.widened, known.widened, known.dropped)):
        return (), optional
    if spec is None:
        return tuple((c.name, c.type) for c in record.columns), optional
    operation = None if record.changes is None else record.changes.operation
    return (
        *((name, str(kind)) for name, kind in spec.columns),
        *((c.name, c.type) for c in record.columns if c.name == operation),
    ), optional


def _record(pieces: Sequence[Piece], why: PieceError, batch: int) -> UnreadPiece:
    """Return the record of a batch's unread part of one file or key."""
    one, counted = pieces[0], why.missing is None
    lengths = [
        p.last - p.first
        if p.unit == "rows" and isinstance(p.first, int) and isinstance(p.last, int)
        else None
        for p in pieces
    ]
    known = [n for n in lengths if n is not None]
    return UnreadPiece(
        source=one.source,
        unit=one.unit,
        first=one.first,
        last=pieces[-1].last,
        rows=sum(known) if counted and len(known) == len(lengths) else None,
        entries=why.missing,
        code=why.code,
        reason=why.message,
        batch=batch,
    )


def _said(held: Held) -> dict[str, Any]:
    return {"reason": held.error, "trials": held.trials}
