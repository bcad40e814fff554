"""Revisions of the running epoch's ruleset: the service's answers to interim measurements.

The runtime appends :class:`~anabranch_contract.protocol.interims.Interim` documents. The service
may answer the newest of them with a *revision*: a ruleset over the stores of the running one,
published under its own id (``Keys.ruleset``). Before each batch the runtime takes the newest
revision. In live mode it never waits for a revision. In step mode (``replay``) it waits until the
service has answered the interim before the batch, so that replays are repeatable.

In live mode rulesets are published before their epochs begin. A ruleset planned without the newest
measurements may be revised before its epoch begins; the epoch then begins with the revision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from anabranch_contract.codec import Message
from anabranch_contract.plans.ruleset import RulesetId


@dataclass(frozen=True, slots=True)
class UpcomingRevision:
    """The newest revision of the ruleset of an epoch that has not begun yet.

    Attributes:
        digest: as in :class:`RevisionAnswer`.
    """

    epoch: int
    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class RevisionAnswer(Message):
    """The service's newest answer to interim measurements.

    Attributes:
        epoch: epoch of the ruleset to which the answer refers.
        revision: the ruleset's newest revision; 0: none.
        digest: digest of the revision's text (:func:`~anabranch_contract.plans.ruleset.digest`).
        answered: ``next_batch`` of the last interim that the service has answered.
        upcoming: revisions of later epochs' rulesets, at most one per epoch, ascending.
    """

    epoch: int
    revision: int = 0
    digest: str = ""
    answered: int = 0
    upcoming: tuple[UpcomingRevision, ...] = ()

    def of_epoch(self, epoch: int) -> UpcomingRevision | None:
        """Return the newest revision of the ruleset of ``epoch``; None if it has no revision."""
        if epoch == self.epoch and self.revision:
            return UpcomingRevision(epoch, self.revision, self.digest)
        return next((one for one in self.upcoming if one.epoch == epoch), None)

    def revised(self, name: RulesetId, digest: str) -> RevisionAnswer:
        """Return this answer with a further revision ``name``, for its epoch or a later one."""
        if name.epoch == self.epoch:
            return replace(self, revision=name.revision, digest=digest)
        others = [one for one in self.upcoming if one.epoch != name.epoch]
        found = [*others, UpcomingRevision(name.epoch, name.revision, digest)]
        return replace(self, upcoming=tuple(sorted(found, key=lambda one: one.epoch)))

    def following(self, epoch: int) -> RevisionAnswer:
        """Return this answer for a later ruleset, that of ``epoch`` (or for the same one), with the
        revisions of that and of later rulesets that have been published so far."""
        if epoch == self.epoch:
            return self
        known = self.of_epoch(epoch) or UpcomingRevision(epoch, 0, "")
        later = tuple(one for one in self.upcoming if one.epoch > epoch)
        return RevisionAnswer(epoch, known.revision, known.digest, upcoming=later)
