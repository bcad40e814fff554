"""Journal of the choices for batches that may have to be repeated: ``choice.json``.

Before a batch starts, its epoch, its ruleset and Spark's text of its input offsets are written
durably to the journal. After an interruption or a rollback the repeated batch reads them back, so
every run of a batch has the same input and the same rules.
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
#: Number of batches in the journal: all batches after the oldest kept manifest, a spare one, and
#: the batch before, as a rebuilt checkpoint needs the offsets at which a batch begins.
REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class KnownLoad:
    """The load before a batch (``rations``), for the driver that repeats the batch."""

    budget: float
    savable: float
    overloaded: bool


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """Journal entry of a batch: epoch, ruleset, input offsets, rations.

    Attributes:
        offsets: text of Spark's offset log entry; None: unknown (no Spark).
        logs: lengths and checksums of the sources' logs (``recovery.logs``).
        left_out: feed -> its input that the batch leaves out, known once its tasks are done.
        rations: the rations below 1. ``owed``: whether the withheld results will be computed later.
        load: load for which the budget of rations was chosen; None: unknown, or no rations.
        costs: stream -> expected seconds of probing per tuple, for the assignment of input to
            tasks. A repeated batch needs the same assignment: tuples' arrival numbers depend on it,
            and rations depend on these numbers.
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
        damage: why the file can't be read. The journal is then empty until the next record.
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
        """The load at the beginning of the newest known batch."""
        return self._known[self.newest].load if self.newest is not None else None

    @property
    def offsets_before(self) -> str | None:
        """The offsets at which the first batch of the journal begins; None if this is the start of
        the sources, or unknown.
        """
        oldest = self._known[min(self._known)] if len(self._known) == REMEMBERED else None
        return None if oldest is None else oldest.offsets

    @property
    def logs(self) -> dict[str, tuple[int, int]]:
        """The sources' logs at the beginning of the newest batch: lengths and checksums."""
        return self._known[self.newest].logs if self.newest is not None else {}

    @property
    def rulesets(self) -> frozenset[RulesetId]:
        """The rulesets of the batches in the journal."""
        return frozenset(c.ruleset for c in self._known.values())

    def get(self, batch: int) -> JournalEntry | None:
        """Return the entry of ``batch``; None if it has not begun."""
        return self._known.get(batch)

    def record(self, batch: int, choice: JournalEntry) -> None:
        """Record ``choice`` for ``batch``; returns once it is durable."""
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
