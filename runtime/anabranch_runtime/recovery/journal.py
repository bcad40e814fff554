"""Choices for the batches that may have to be repeated: a small journal, ``choice.json``.

Before a batch starts, its epoch, its ruleset and Spark's text of its input offsets are made durable
here. A repetition reads them back, after an interrupted batch or a roll back to before it: so every
run of a batch has the same input and the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract import codec
from anabranch_contract.plans.rations import Ration
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_runtime.errors import StateError
from anabranch_runtime.state.unread import UnreadInput
from anabranch_runtime.storage.documents import Kind, read_document
from anabranch_runtime.storage.durable import durable

KIND = Kind("journal", "choices")
#: Batches remembered: all that follow the oldest manifest that is kept, one to spare, and the one
#: before: a rebuilt checkpoint needs the offsets at which a batch begins.
REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """Load before a batch, for the driver that repeats it."""

    budget: float
    savable: float
    overloaded: bool


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Journal entry of a batch: epoch, ruleset, input offsets, rations.

    Attributes:
        offsets: Spark's offset log entry, as text; None where it is not known (no Spark).
        logs: lengths and checksums of the sources' logs (``recovery.logs``).
        left_out: feed -> its input that the batch leaves out, known once its tasks are done.
        rations: of goals whose share of tuples is less than 1. ``owed``: whether a catch-up
            delivers the withheld results.
        load: load that the budget of rations was chosen for; None: not known, or no rations.
        costs: stream -> expected seconds of probing per tuple, for the assignment of input to
            tasks. Numbers of tuples depend on the assignment, and rations withhold by these
            numbers.
    """

    epoch: int
    ruleset: RulesetId
    offsets: str | None = None
    logs: dict[str, tuple[int, int]] = field(default_factory=dict)
    left_out: dict[str, UnreadInput] = field(default_factory=dict)
    rations: tuple[Ration, ...] = ()
    owed: bool = False
    load: KnownLoad | None = None
    costs: dict[str, float] = field(default_factory=dict)


class Journal:
    """The journal of one state directory.

    Attributes:
        damage: why it can't be read; it then knows of nothing until the next choice is recorded.
    """

    def __init__(self, root: Path) -> None:
        self._durable = durable(root)
        self._path = root / "choice.json"
        self._known: dict[int, JournalEntry] = {}
        self.damage: StateError | None = None
        if not self._path.exists():
            return
        try:
            self._known = _read(self._path)
        except StateError as error:
            if error.code == "unknown-version":
                raise
            self.damage = error

    @property
    def newest(self) -> int | None:
        """The newest batch known to have begun; None without any."""
        return max(self._known, default=None)

    @property
    def load(self) -> KnownLoad | None:
        """The load as of the beginning of the newest known batch."""
        return self._known[self.newest].load if self.newest is not None else None

    @property
    def offsets_before(self) -> str | None:
        """The offsets at the beginning of all batches that may have to be repeated; None where
        that is the beginning of the sources, or not known.
        """
        oldest = self._known[min(self._known)] if len(self._known) == REMEMBERED else None
        return None if oldest is None else oldest.offsets

    @property
    def logs(self) -> dict[str, tuple[int, int]]:
        """The sources' logs as of the beginning of the newest batch."""
        return self._known[self.newest].logs if self.newest is not None else {}

    @property
    def rulesets(self) -> frozenset[RulesetId]:
        """The rulesets that batches have been begun by."""
        return frozenset(c.ruleset for c in self._known.values())

    def get(self, batch: int) -> JournalEntry | None:
        """The choice for ``batch``; None if it has not begun."""
        return self._known.get(batch)

    def record(self, batch: int, choice: JournalEntry) -> None:
        """Make ``choice`` durable; returns once it is."""
        known = {b: c for b, c in self._known.items() if b < batch} | {batch: choice}
        known = dict(sorted(known.items())[-REMEMBERED:])
        self._durable.write(self._path, KIND, list(known.items()))
        self._known, self.damage = known, None


def _read(path: Path) -> dict[int, JournalEntry]:
    body = read_document(path, KIND)
    try:
        return dict(codec.from_json(body, tuple[tuple[int, JournalEntry], ...]))
    except codec.Malformed as cause:
        raise StateError("damaged-journal", f"{path} is no journal: {cause}") from cause
