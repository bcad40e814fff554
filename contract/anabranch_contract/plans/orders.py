"""Digest of a ruleset's orders, independent of the names of edges, epoch and revision."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from anabranch_contract.plans.ruleset import Edge, Ruleset


def orders_digest(ruleset: Ruleset) -> str:
    """Equal for two rulesets exactly if equal tuples take equal probes, into equal stores and to
    equal queries. So their work per row is the same on the same data.
    """
    functions = {
        one.start: (one.attribute, one.type, one.groups, one.others) for one in ruleset.substreams
    }
    paths: dict[Edge, str] = {}
    for rule in ruleset.paths:
        step = rule.start, rule.store, rule.members, rule.key, rule.ahead, rule.substreams
        told = functions[rule.start] if rule.substreams else ()
        paths[rule.out] = _digest((paths.get(rule.edge, rule.edge), step, told))
    ends = [
        *(("query", o.query, paths.get(o.edge, o.edge)) for o in ruleset.output_rules),
        *(("store", s.store, paths.get(s.edge, s.edge)) for s in ruleset.store_rules),
    ]
    return _digest(sorted(ends))


def _digest(value: object) -> str:
    return hashlib.blake2b(repr(value).encode(), digest_size=8).hexdigest()
