"""Parsing of rulesets (execution plans), published whole or as patches (differences from a base).

The last two bases and the last ruleset are cached; the next ruleset reuses unchanged rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.patches import Patch, applied
from anabranch_contract.plans.rows import Decoded, decoded
from anabranch_contract.plans.ruleset import Ruleset, RulesetId

_LAST = deque[Decoded](maxlen=1)
#: Bases of patches that are cached, as (digest, text): from Redis, and from the state directory.
_BASES = deque[tuple[str, str]](maxlen=2)


def read_ruleset(text: str, name: RulesetId) -> Ruleset:
    """Parse the ruleset ``text``. If it differs from the last one only in the epoch number, the
    parsed rules are reused.

    Raises:
        RulesetError: malformed text, as ``ruleset.from_json``.
    """
    return replace(_decoded(rulesets.renumbered(text, 0)), epoch=name.epoch)


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


@lru_cache(maxsize=1)
def _decoded(text: str) -> Ruleset:
    _LAST.append(decoded(text, next(iter(_LAST), None)))
    return _LAST[-1].ruleset
