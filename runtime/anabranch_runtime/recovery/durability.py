"""Durable records of batches, for recovery: journal, manifests, stored rulesets, sources' logs."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

import structlog

from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_runtime.control import Control
from anabranch_runtime.errors import PipelineError, StateError
from anabranch_runtime.recovery.journal import Journal
from anabranch_runtime.recovery.logs import Prefixes, check_logs, prefixes
from anabranch_runtime.recovery.rulesets import Rulesets
from anabranch_runtime.state.manifest import KEPT, Manifests, State
from anabranch_runtime.storage.depth import Verify
from anabranch_runtime.storage.durable import Durable, durable
from anabranch_runtime.storage.object_store import UNAVAILABLE
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.verify import REMEDY

_LOG = structlog.get_logger("anabranch.runtime")
#: Seconds between two searches for files of failed attempts and lost merges.
TIDY = 600.0
#: Codes of errors from which can't be concluded whether a state is intact.
_TELL_NOTHING = ("unknown-version", *UNAVAILABLE)


class Durability:
    """Durable records of one state directory.

    Attributes:
        storage: storage of packs. ``manifests``: committed states.
        choices: journal of batches begun. ``rulesets``: rulesets stored beside the state.
    """

    def __init__(self, root: Path, storage: Durable, control: Control, *, replay: bool) -> None:
        self._root, self._replay = root, replay
        self.storage = storage
        storage.adopt()
        self.manifests = Manifests(root)
        self.choices = Journal(root)
        self.rulesets = Rulesets(root, control)
        self._tidied = time.monotonic()

    def recover(self, verify: Verify) -> State:
        """Return the newest intact state, and delete the packs of an interrupted batch, which no
        manifest names.

        Raises:
            StateError: the state is damaged, or of another pipeline; nothing has been deleted.
        """
        state = recover(self._root, self.manifests, self.choices, verify)
        # Check the logs before anything is deleted.
        check_logs(self._root, self.choices.logs)
        self.choices.check(state.next_batch, replay=self._replay)
        self.storage.sweep(self.manifests.named)
        return state

    def rules(self, state: State) -> Ruleset | None:
        """Return the ruleset of ``state``; None before the first epoch, or if neither the state
        directory nor Redis has it any more."""
        if state.ruleset.epoch < 0:
            return None
        try:
            return self.rulesets.get(state.ruleset)
        except PipelineError as error:
            _LOG.warning("ruleset of the epoch not found", error=str(error))
            return None

    def keep_logs(self) -> Prefixes:
        """Make additions to the sources' logs durable; return the logs' lengths and checksums."""
        logs = prefixes(self._root, self.choices.logs)
        self.storage.keep(logs, self.choices.logs)
        return logs

    def forget(self, written: Collection[str]) -> None:
        """Delete packs and rulesets that no kept manifest names, even packs just ``written``."""
        unnamed = set(written) - self.manifests.named
        self.storage.discard(self.manifests.dropped() | unnamed)
        self.rulesets.forget(self.used)

    def tidy(self, pending: Collection[str], next_batch: int) -> None:
        """Every :data:`TIDY` seconds, delete files left by failed attempts and lost merges."""
        if time.monotonic() < self._tidied + TIDY:
            return
        self._tidied = time.monotonic()
        # The state may be rolled back to the newest batches, so their packs stay.
        self.storage.tidy(self.manifests.named | set(pending), next_batch - KEPT)

    @property
    def used(self) -> frozenset[RulesetId]:
        """Return the rulesets of kept manifests and of batches in the journal."""
        return self.manifests.rulesets | self.choices.rulesets


def recover(root: Path, manifests: Manifests, choices: Journal, depth: Verify) -> State:
    """Return the newest intact state below ``root``. It is empty if nothing was ever committed, or
    if no manifest is intact but the journal still has the first batch.

    Manifests are tried from the newest to the oldest kept one. A manifest is intact if it can be
    read and every pack that it names passes the check ``depth``. Whether the pipeline may be rolled
    back that far is decided by the journal (:meth:`Journal.check`).

    Raises:
        StateError: ``unknown-version``; ``store-unreachable`` or ``store-refused``; or
            ``state-lost``: batches were committed, and no manifest is intact.
    """
    verified: set[Segment] = set()
    problems: list[StateError] = []
    for path, found in manifests.kept():
        try:
            if isinstance(found, StateError):
                raise found
            segments = [s for store in found.stores.values() for s in store.kept]
            segments += found.tables.segments
            durable(root).verify(segments, depth, verified)
        except StateError as error:
            if error.code in _TELL_NOTHING:
                raise
            problems.append(error)
            _LOG.error("state not whole", manifest=path.name, error=str(error))
            continue
        if problems:
            _LOG.warning("rolled back", next_batch=found.next_batch, passed_over=len(problems))
        return found
    begun = bool(choices.damaged) or (choices.newest or 0) > 0
    if (problems or begun) and choices.get(0) is None:
        reason = problems[0].message if problems else "batches have been begun"
        raise StateError("state-lost", f"no manifest is intact: {reason}", remedy=REMEDY)
    if problems or begun:
        _LOG.warning("rolled back", next_batch=0, passed_over=len(problems))
    return State()
