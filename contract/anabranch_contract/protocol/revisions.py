"""Revisions of the running epoch's ruleset: the service's answers to interim measurements.

The runtime appends :class:`~anabranch_contract.protocol.interims.Interim` documents. The service
may answer the newest with a *revision*: another ruleset over the stores of the one that it revises,
under ``Keys.ruleset`` by its own id. Before a batch the runtime takes the newest revision of its
ruleset, and never waits for one. In step mode (``replay``) it waits until the interim before that
batch has been answered, so that a replay repeats.

Live, rulesets are published ahead of their epochs. One that was planned before the newest
measurements may be revised before its epoch begins; the epoch then begins with the revision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch_contract.codec import Message
from anabranch_contract.plans.ruleset import RulesetId


@dataclass(frozen=True, slots=True)
class UpcomingRevision:
    """The newest revision of the ruleset of an epoch that has not begun.

    Attributes:
        digest: as in :class:`RevisionAnswer`.
    """

    epoch: int
    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class RevisionAnswer(Message):
    """The newest answer.

    Attributes:
        epoch: of the ruleset that the answer is for.
        revision: the newest revision of it; 0: there is none.
        digest: of the revision's document (:func:`~anabranch_contract.plans.ruleset.digest`).
        answered: ``next_batch`` of the interim that was answered last.
        upcoming: revisions of later epochs' rulesets, at most one for each, ascending.
    """

    epoch: int
    revision: int = 0
    digest: str = ""
    answered: int = 0
    upcoming: tuple[UpcomingRevision, ...] = ()

    def of_epoch(self, epoch: int) -> UpcomingRevision | None:
        """The newest revision of the ruleset of ``epoch``; None: there is none."""
        if epoch == self.epoch and self.revision:
            return UpcomingRevision(epoch, self.revision, self.digest)
        return next((one for one in self.upcoming if one.epoch == epoch), None)

    def revised(self, name: RulesetId, digest: str) -> RevisionAnswer:
        """The same with the revision ``name`` of its epoch's ruleset, or of a later one."""
        if name.epoch == self.epoch:
            return replace(self, revision=name.revision, digest=digest)
        others = [one for one in self.upcoming if one.epoch != name.epoch]
        found = [*others, UpcomingRevision(name.epoch, name.revision, digest)]
        return replace(self, upcoming=tuple(sorted(found, key=lambda one: one.epoch)))

    def following(self, epoch: int) -> RevisionAnswer:
        """The answer to begin with for measurements by the ruleset of ``epoch``."""
        if epoch == self.epoch:
            return self
        known = self.of_epoch(epoch) or UpcomingRevision(epoch, 0, "")
        later = tuple(one for one in self.upcoming if one.epoch > epoch)
        return RevisionAnswer(epoch, known.revision, known.digest, upcoming=later)
