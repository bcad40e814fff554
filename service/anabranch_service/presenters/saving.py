"""The CPU time that the running plan saves, as a mean over the last minutes.

An epoch's estimate is based on rates of a few seconds, and may differ much from the next epoch's
with the same plan. So the estimates of all recent epochs with the running plan are averaged, and
the range of their relative savings is shown beside the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile

from anabranch_contract.rest.planning.epochs import EpochSummary, SavingOut

#: Length of the look-back in seconds, and maximum number of epochs read for it.
SECONDS, EPOCHS = 600.0, 200


def saving_out(newest_first: Sequence[EpochSummary], now: datetime) -> SavingOut | None:
    """Return the saving of the plan of the newest begun epoch; None if unknown.

    Args:
        newest_first: published epochs. Epochs that have not begun or have no estimate are skipped.
    """
    begun = [one for one in newest_first if one.first_batch is not None]
    if not begun or begun[0].plan is None:
        return None
    same = takewhile(
        lambda one: one.plan == begun[0].plan and _age(one.published_at, now) <= SECONDS, begun
    )
    known = [(one, one.cpu) for one in same if one.cpu is not None and one.cpu.individual > 0]
    if not known:
        return None
    plan = sum(cpu.plan for _, cpu in known)
    individual = sum(cpu.individual for _, cpu in known)
    shares = [1 - cpu.plan / cpu.individual for _, cpu in known]
    since = known[-1][0].published_at
    return SavingOut(
        since=since,
        seconds=_age(since, now),
        epochs=len(known),
        cpu_seconds=plan,
        individual_cpu_seconds=individual,
        share=1 - plan / individual,
        lowest=min(shares),
        highest=max(shares),
    )


def _age(moment: str, now: datetime) -> float:
    """Return the seconds since a time; at least 0, as the clocks of two services may differ."""
    return max((now - datetime.fromisoformat(moment)).total_seconds(), 0.0)
