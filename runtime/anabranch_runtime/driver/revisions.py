"""Choosing among the service's revisions of the running ruleset: the newest valid one is taken."""

from __future__ import annotations

from dataclasses import replace

import structlog

from anabranch_contract.errors import RulesetError
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.rows import read_ruleset
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.progress import RevisionCounts
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_runtime.control import Control
from anabranch_runtime.epochs.failed_queries import surviving
from anabranch_runtime.epochs.revisions import check_revision
from anabranch_runtime.errors import PipelineError
from anabranch_runtime.recovery.rulesets import Rulesets
from anabranch_runtime.state.manifest import State

_LOG = structlog.get_logger("anabranch.runtime")


class Revisions:
    """Finds the ruleset of the next batch of a running epoch.

    Attributes:
        counts: numbers of revisions that this driver has taken, passed over and refused.
    """

    def __init__(self, control: Control, kept: Rulesets) -> None:
        self._control, self._rulesets = control, kept
        self.counts = RevisionCounts()
        #: The last revision that was refused or passed over.
        self._seen = RulesetId(-1)

    def newest(self, state: State, answer: RevisionAnswer | None) -> RulesetId:
        """The newest valid revision of the ruleset of ``state``, which is also kept on disk; the
        running ruleset itself if there is none."""
        running = state.ruleset
        if answer is None:
            return running
        found = answer.of_epoch(running.epoch) or answer.of_epoch(answer.epoch)
        if found is None:
            return running
        name = RulesetId(found.epoch, found.revision)
        # A revision of a later epoch's ruleset waits for that epoch.
        if name in (running, self._seen) or name.epoch > running.epoch:
            return running
        if name < running:
            self._seen = name
            self.counts = replace(self.counts, passed_over=self.counts.passed_over + 1)
            _LOG.info("revision passed over", revision=str(name), ruleset=str(running))
            return running
        return self._taken(state, running, name, found.digest)

    def entering(self, state: State, published: int, answer: RevisionAnswer | None) -> RulesetId:
        """The ruleset of a new epoch's first batch: the running one if it was planned for epoch
        ``published``, otherwise the newest valid revision of the ruleset published for it."""
        if published == state.ruleset.epoch:
            return state.ruleset
        base = RulesetId(published)
        found = None if answer is None else answer.of_epoch(published)
        if found is None or RulesetId(published, found.revision) == self._seen:
            return base
        return self._taken(state, base, RulesetId(published, found.revision), found.digest)

    def _taken(self, state: State, base: RulesetId, name: RulesetId, digest: str) -> RulesetId:
        """Return the id ``name`` if this revision of ``base`` is valid; otherwise ``base``."""
        try:
            self._keep(state, base, name, digest)
        except (PipelineError, RulesetError) as error:
            self._seen = name
            reason = f"{name}: {error.code}: {error}"
            self.counts = replace(self.counts, refused=self.counts.refused + 1, reason=reason)
            _LOG.error("revision refused", revision=str(name), code=error.code, error=str(error))
            return base
        self.counts = replace(self.counts, taken=self.counts.taken + 1)
        return name

    def _keep(self, state: State, base: RulesetId, name: RulesetId, digest: str) -> None:
        text = self._control.ruleset_text(name)
        if rulesets.digest(text) != digest:
            raise PipelineError(
                "revision-digest-differs",
                f"the document of {name} is not the one that was published",
                remedy="the old rules go on; check who writes to this Redis",
            )
        revision = read_ruleset(text, name)
        running = self._rulesets.get(base)
        # Before the comparison, failed queries and their stores are removed from both rulesets.
        check_revision(surviving(running, state), surviving(revision, state))
        self._rulesets.keep(revision, text)
