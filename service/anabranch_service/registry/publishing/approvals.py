"""The held plan, which waits for an operator's approval, and the operator's decision on it.

Both are in one hash in Redis. The leader writes the plan, any service the decision. Each write
compares the digest of its plan with the stored one, so no decision is lost, and no plan is
published that no operator has seen.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import AwareDatetime

from anabranch_contract.rest.documents import Closed

#: Maximum number of refused plans remembered for the same queries, streams and settings.
REFUSED_KEPT = 64

WAITS, REFUSED = "its plan waits for approval", "its plan was refused"


class HeldPlan(Closed):
    """A plan that waits for an operator's approval.

    Attributes:
        digest: digest of the plan's effects, which is its version.
        basis: digest of the queries, streams and settings that the plan is for.
        since: time since which this plan or an earlier one has been waiting.
        proposed_at, epoch: when, and for which epoch, this plan was last proposed.
        waiting: runs that this plan includes and the running plan does not.
        note: why a plan that was approved before was not published; empty: none was.
    """

    digest: str
    basis: str
    since: AwareDatetime
    proposed_at: AwareDatetime
    epoch: int
    waiting: tuple[str, ...]
    note: str = ""


class Refusals(Closed):
    """Refused plans for the same queries, streams and settings.

    Attributes:
        basis: digest of these queries, streams and settings.
        digests: digests of the refused plans, the newest last.
        waiting: runs that are not in the running plan.
    """

    basis: str
    digests: tuple[str, ...]
    waiting: tuple[str, ...]

    @staticmethod
    def after(known: Refusals | None, held: HeldPlan) -> Refusals:
        """Return the refusals ``known``, with the refusal of ``held`` added."""
        before = known.digests if known is not None and known.basis == held.basis else ()
        digests = (*before, held.digest)[-REFUSED_KEPT:]
        return Refusals(basis=held.basis, digests=digests, waiting=held.waiting)


@dataclass(frozen=True, slots=True)
class Approvals:
    """The held plan, and the operators' decisions.

    Attributes:
        text: stored document of ``held``, even if it can't be parsed.
        approved: the digest of the approved plan; empty: none.
    """

    held: HeldPlan | None = None
    text: str = ""
    approved: str = ""
    refused: Refusals | None = None

    @property
    def is_approved(self) -> bool:
        """Whether an operator has approved the held plan."""
        return self.held is not None and self.held.digest == self.approved

    @property
    def waits(self) -> bool:
        """Whether the held plan still needs an operator's decision."""
        return self.held is not None and not self.is_approved

    def refuses(self, digest: str, basis: str) -> bool:
        """Whether the plan ``digest`` was refused for the same queries, streams and settings."""
        known = self.refused
        return known is not None and known.basis == basis and digest in known.digests

    def reason(self, run: str) -> str | None:
        """Return why the pending ``run`` waits for an operator, or None."""
        if self.held is not None:
            return WAITS if self.waits and run in self.held.waiting else None
        return REFUSED if self.refused is not None and run in self.refused.waiting else None


#: Approve the held plan. KEYS approval; ARGV digest. Returns 0 if another plan is held by now.
APPROVE = """
if redis.call('HGET', KEYS[1], 'digest') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'approved', ARGV[1])
return 1
"""

#: Refuse the held plan. KEYS approval; ARGV digest, refusals. Returns 0 if another plan is held by
#: now, or if the plan has been approved.
REFUSE = """
if redis.call('HGET', KEYS[1], 'digest') ~= ARGV[1] then return 0 end
if redis.call('HGET', KEYS[1], 'approved') == ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'digest', 'held', 'record', 'ruleset', 'approved')
redis.call('HSET', KEYS[1], 'refused', ARGV[2])
return 1
"""

#: Replace the held plan (part of a ``lease.fenced`` script). KEYS leader, approval; ARGV owner,
#: token, the held and the approved plan as the leader read them, whether to forget refusals, then
#: the fields of the new held plan. If a decision was made meanwhile, nothing is written.
HOLD = """
if (redis.call('HGET', KEYS[2], 'held') or '') ~= ARGV[3] then return 0 end
if (redis.call('HGET', KEYS[2], 'approved') or '') ~= ARGV[4] then return 0 end
redis.call('HDEL', KEYS[2], 'digest', 'held', 'record', 'ruleset', 'approved')
if ARGV[5] == '1' then redis.call('HDEL', KEYS[2], 'refused') end
for i = 6, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
"""
