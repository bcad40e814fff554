"""Application of published patches of rulesets; the last two bases are cached."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from anabranch_contract.plans.patches import Patch, applied

#: Bases of patches that are cached, as (digest, text): from Redis, and from the state directory.
_BASES = deque[tuple[str, str]](maxlen=2)


def patched(patch: Patch, base: Callable[[], str | None]) -> str:
    """Apply ``patch`` to its base, a ruleset's text that is cached or else returned by ``base()``.

    Raises:
        RulesetError: the patch does not apply, as :func:`applied`.
    """
    known = dict(_BASES).get(patch.base_digest)
    there = (base() or "") if known is None else known
    text = applied(there, patch)
    if known is None:
        _BASES.append((patch.base_digest, there))
    return text
