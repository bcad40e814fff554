"""Rulesets of their texts. What a process has read last it does not read again: the bases of
patches, and the rows of the last ruleset, which are the same objects in the next one.
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
#: (digest, text) of bases: one that Redis has, one beside the state.
_BASES = deque[tuple[str, str]](maxlen=2)


def read_ruleset(text: str, name: RulesetId) -> Ruleset:
    """The ruleset of ``text``. That of an epoch for which nothing has changed differs from the one
    that was read last in its number only, and is not taken apart again.

    Raises:
        RulesetError: as ``ruleset.from_json`` does.
    """
    return replace(_decoded(rulesets.renumbered(text, 0)), epoch=name.epoch)


def patched(patch: Patch, base: Callable[[], str | None]) -> str:
    """The text that ``patch`` makes of its base, for which ``base`` is asked unless it is known.

    Raises:
        RulesetError: as :func:`applied` does.
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
