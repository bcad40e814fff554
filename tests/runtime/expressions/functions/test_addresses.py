"""Compare ``cidr_match`` with the standard library, value by value."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from random import Random

import pyarrow as pa
import pytest

from anabranch_contract.queries.coercion import STRING
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Literal
from anabranch_runtime.expressions.evaluate import evaluate

_ODD = (
    None, "", "x", "10.1.2.3", "010.1.2.3", "10.1.2", "10.1.2.3.4", "256.1.1.1", "10.0.0.0 ",
    "9.255.255.255", "1٠.1.2.3", "::", "::1", "fd00::7", "fe80::1%eth0", "::ffff:10.9.9.9",
    "1::2::3",
)  # fmt: skip


def _contains(network: str, text: str | None) -> bool | None:
    try:
        address = ip_address(text or "")
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address) in ip_network(network, strict=False)


@pytest.mark.parametrize(
    "network", ["10.0.0.0/8", "10.1.2.3", "10.1.2.3/31", "0.0.0.0/0", "fd00::/8", "::/0", "::1/128"]
)
def test_random_addresses(network: str) -> None:
    rng = Random(network)
    first = ip_network(network, strict=False)[0]
    near = [str(first + rng.randrange(1 << 20)) for _ in range(500)]
    far4 = [str(IPv4Address(rng.getrandbits(32))) for _ in range(2_000)]
    texts = [*_ODD, *near, *far4, *(str(IPv6Address(rng.getrandbits(128))) for _ in range(500))]
    call = Call("cidr_match", (Column("", "x", STRING), Literal(network, STRING)), BOOLEAN)
    found = evaluate(call, lambda _: pa.array(texts), len(texts)).to_pylist()
    assert found == [_contains(network, text) for text in texts]
    assert {True, None} <= set(found)
