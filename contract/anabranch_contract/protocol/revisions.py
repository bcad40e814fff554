"""Revisions of the running epoch's ruleset: the service's answers to interim measurements.

The runtime appends :class:`~anabranch_contract.protocol.interims.Interim` documents. The service
may answer the newest with a *revision*: another ruleset over the stores of the one that it revises,
under ``Keys.ruleset`` by its own id. Before a batch the runtime takes the newest revision of the
ruleset that it goes by, and never waits for one. In step mode (``replay``) it waits until the
interim before that batch has been answered, so that a replay repeats.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch_contract.codec import Message


@dataclass(frozen=True, slots=True)
class RevisionAnswer(Message):
    """The newest answer.

    Attributes:
        epoch: of the ruleset that the answer is for.
        revision: the newest revision of it; 0: there is none.
        digest: of the revision's document (:func:`~anabranch_contract.plans.ruleset.digest`).
        answered: ``next_batch`` of the interim that was answered last.
    """

    epoch: int
    revision: int = 0
    digest: str = ""
    answered: int = 0
