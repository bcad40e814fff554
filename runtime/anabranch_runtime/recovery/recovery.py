"""The state from which a pipeline starts: the newest intact one.

Manifests are tried from the newest to the oldest that is kept; one counts if it can be read and
every pack that it names passes ``verify``. Whether the pipeline may go back that far is
for ``recovery.checkpoint`` to decide.
"""

from __future__ import annotations

from pathlib import Path

import structlog

from anabranch_runtime.errors import StateError
from anabranch_runtime.recovery.journal import Journal
from anabranch_runtime.state.manifest import Manifests, State
from anabranch_runtime.storage.durable import durable
from anabranch_runtime.storage.object_store import UNAVAILABLE
from anabranch_runtime.storage.segment import Segment
from anabranch_runtime.storage.verify import REMEDY, Verify

#: Errors that tell nothing about whether a state is intact.
_TELL_NOTHING = ("unknown-version", *UNAVAILABLE)

_LOG = structlog.get_logger("anabranch.runtime")


def recover(root: Path, manifests: Manifests, choices: Journal, depth: Verify) -> State:
    """The newest whole state below ``root``; an empty one where nothing was ever committed, or
    where so little was that the journal still has the first batch.

    Raises:
        StateError: ``unknown-version``; ``store-unreachable`` or ``store-refused``; or
            ``state-lost``: something was committed, and none of it is whole.
    """
    verified: set[Segment] = set()
    problems: list[StateError] = []
    for path, found in manifests.kept():
        try:
            if isinstance(found, StateError):
                raise found
            segments = [s for store in found.stores.values() for s in store.kept]
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
    begun = choices.damage is not None or (choices.newest or 0) > 0
    if (problems or begun) and choices.get(0) is None:
        reason = problems[0].message if problems else "batches have been begun"
        raise StateError("state-lost", f"no manifest is whole: {reason}", remedy=REMEDY)
    if problems or begun:
        _LOG.warning("rolled back", next_batch=0, passed_over=len(problems))
    return State()
