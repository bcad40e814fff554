"""Access policy that allows everything, for tests of other subjects."""

from __future__ import annotations

from anabranch_contract.connectors.policy import AccessPolicy

OPEN = AccessPolicy(
    formats=frozenset({"jdbc", "fax", "notebook", "no-such-format", "some.other.Format"}),
    paths=("/",),
    hosts=("*", "localhost"),
)
