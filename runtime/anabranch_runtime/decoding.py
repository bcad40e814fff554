"""Application of published patches of rulesets; the last two bases and results are cached."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch_contract.plans.patches import Patch, applied

#: Bases of patches that are cached, as (digest, text): from Redis, and from the state directory.
_BASES = deque[tuple[str, str]](maxlen=2)
#: Results of the last patches, as (digest, text): epochs with the same rules have the same patch.
_RESULTS = deque[tuple[str, str]](maxlen=2)


def patched(patch: Patch, base: Callable[[], str | None]) -> str:
    """Apply ``patch`` to its base, a ruleset's text that is cached or else returned by ``base()``.

    Raises:
        RulesetError: the patch does not apply, as :func:`applied`.
    """
    text = dict(_RESULTS).get(patch.digest)
    if text is not None:
        return text
    known = dict(_BASES).get(patch.base_digest)
    there = (base() or "") if known is None else known
    text = applied(there, patch)
    _RESULTS.append((patch.digest, text))
    if known is None:
        _BASES.append((patch.base_digest, there))
    return text
