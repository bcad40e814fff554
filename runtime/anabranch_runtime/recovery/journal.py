"""Journal of begun batches: ``journal/<batch>.json``.

Before a batch publishes anything, its epoch, its ruleset and its input offsets are durable in the
journal. They are written while its tasks run. After an interruption or a rollback the repeated
batch reads them back, so every run of a batch that has published results has the same input and the
same rules. Entries that no rollback can reach are deleted.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.offsets import Offsets
from anabranch_runtime.state.unread import UnreadInput
from anabranch_runtime.storage.documents import Kind, read_document
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.verify import BACKUP, REMEDY

KIND = Kind("journal", "batch")
#: Number of batches in the journal: all after the oldest kept manifest, and one more.
REMEMBERED = 4


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """Load before a batch (fields of ``LoadState``), with which a new driver repeats the batch."""

    budget: float
    savable: float
    overloaded: bool


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Journal entry of a batch: epoch, ruleset, input offsets, rations.

    Attributes:
        offsets: end of the batch's input; None: no planned input.
        logs: lengths and checksums of the sources' logs (``recovery.logs``).
        left_out: feed -> its input that the batch leaves out, known once its tasks are done.
        rations: the rations below 1. ``owed``: whether a catch-up computes the withheld results.
        load: load from which the budget of rations was chosen; None: unknown, or no rations.
        costs: stream -> expected seconds of probing per tuple, for the assignment of input to
            tasks. A repeated batch needs the same assignment: tuples' arrival numbers depend on it,
            and rations depend on these numbers.
        time: value of ``current_timestamp`` in the batch (Unix time, microseconds).
    """

    epoch: int
    ruleset: RulesetId
    offsets: Offsets | None = None
    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: dict[str, UnreadInput] = field(default_factory=dict)
    rations: tuple[Ration, ...] = ()
    owed: bool = False
    load: KnownLoad | None = None
    costs: dict[str, float] = field(default_factory=dict)
    time: int = 0


class Journal:
    """The journal of one state directory.

    Attributes:
        damaged: batches whose entries can't be read.
    """

    def __init__(self, root: Path) -> None:
        self._durable, self._folder = durable(root), root / "journal"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: dict[int, JournalEntry] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal")
        #: The entry being written; known entries, and damaged batches, as they were before it.
        self._writing: tuple[Future[float], dict[int, JournalEntry], set[int]] | None = None
        self.damaged = set[int]()
        for path in sorted(self._folder.glob("*.json")):
            try:
                self._known[int(path.stem)] = _read(path)
            except StateError as error:
                if error.code == "unknown-version":
                    raise
                self.damaged.add(int(path.stem))

    @property
    def newest(self) -> int | None:
        """The newest batch that has begun, by the journal; None before the first."""
        return max((*self._known, *self.damaged), default=None)

    @property
    def load(self) -> KnownLoad | None:
        """The load before the newest batch with a readable journal entry; None if unknown."""
        return self._last.load if self._last is not None else None

    @property
    def offsets_before(self) -> Offsets | None:
        """Input offsets where the first batch begins that may be repeated; None if this is the
        start of the sources, or unknown."""
        oldest = self._known[min(self._known)] if len(self._known) == REMEMBERED else None
        return None if oldest is None else oldest.offsets

    @property
    def logs(self) -> dict[str, tuple[int, int]]:
        """Lengths and checksums of the sources' logs at the beginning of the newest batch."""
        return self._last.logs if self._last is not None else {}

    @property
    def rulesets(self) -> frozenset[RulesetId]:
        """The rulesets of the batches in the journal, as ids."""
        return frozenset(c.ruleset for c in self._known.values())

    @property
    def _last(self) -> JournalEntry | None:
        return self._known[max(self._known)] if self._known else None

    def check(self, next_batch: int, *, replay: bool) -> None:
        """Check that the journal has every begun batch from ``next_batch`` on, so that a repetition
        has the same input.

        Args:
            replay: whether batches without an entry are the same when repeated, as in step mode.

        Raises:
            StateError: ``damaged-journal``: ``next_batch`` may have begun, and its entry is lost.
                ``state-behind``: the state is older than the journal.
        """
        newest = -1 if self.newest is None else self.newest
        lost = [b for b in range(next_batch, newest) if b not in self._known]
        if lost:
            raise StateError(
                "state-behind",
                f"batches up to {newest} have begun, the newest whole state is the one before "
                f"batch {next_batch}, and the input of batch {lost[0]} is unknown",
                remedy=REMEDY,
            )
        if replay:
            return
        accepted = f"{BACKUP}; or, if what that batch has published may be replaced by results of "
        if next_batch in self.damaged:
            raise StateError(
                "damaged-journal",
                f"{self._path(next_batch)} is damaged, and so the input of batch {next_batch}, "
                "which has begun, is unknown",
                remedy=f"{accepted}other tuples, delete this file",
            )
        if newest < next_batch - 1:
            raise StateError(
                "damaged-journal",
                f"{self._folder} has no entry of batch {next_batch - 1}, so batch {next_batch} may "
                "have begun with unknown input",
                remedy=f"{accepted}other tuples, create an empty file "
                f"{self._path(next_batch - 1).name} there",
            )

    def get(self, batch: int) -> JournalEntry | None:
        """Return the journal entry of ``batch``; None if it has not begun."""
        return self._known.get(batch)

    def record(self, batch: int, entry: JournalEntry) -> None:
        """Write ``entry`` of ``batch`` into the journal; return once it is durable."""
        self.begin(batch, entry)
        self.settle()

    def begin(self, batch: int, entry: JournalEntry) -> None:
        """Begin to write ``entry`` of ``batch`` into the journal, in the background.

        Until :meth:`wait` or :meth:`settle` has returned, no other document may be written or
        deleted, and until :meth:`settle` has, nothing of the batch may become visible.
        """
        self.settle()
        spent = {b for b in (*self._known, *self.damaged) if b <= batch - REMEMBERED}
        writing = self._writer.submit(self._write, batch, entry, spent)
        self._writing = writing, self._known, self.damaged
        self._known = {b: c for b, c in self._known.items() if b not in spent} | {batch: entry}
        self.damaged = self.damaged - {*spent, batch}

    def wait(self) -> None:
        """Wait until the attempt to write the entry has ended; it may have failed."""
        if self._writing is not None:
            wait((self._writing[0],))

    def settle(self) -> float:
        """Wait until the entry that :meth:`begin` writes, if any, is durable; return the CPU
        seconds that writing has taken in the background.

        Raises:
            OSError, StateError: the entry can't be written; afterwards the batch has none.
        """
        if self._writing is None:
            return 0.0
        (writing, known, damaged), self._writing = self._writing, None
        try:
            return writing.result()
        except BaseException:
            self._known, self.damaged = known, damaged
            raise

    def _write(self, batch: int, entry: JournalEntry, spent: set[int]) -> float:
        began = time.thread_time()
        self._durable.write(self._path(batch), KIND, entry)
        self._durable.discard(f"{self._folder.name}/{self._path(b).name}" for b in spent)
        return time.thread_time() - began

    def _path(self, batch: int) -> Path:
        return self._folder / f"{batch:012d}.json"


def _read(path: Path) -> JournalEntry:
    body = read_document(path, KIND)
    try:
        return codec.from_json(body, JournalEntry)
    except codec.Malformed as cause:
        raise StateError("damaged-journal", f"{path} is not a journal: {cause}") from cause
