"""Functions of internet addresses."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from ipaddress import IPv6Address, ip_address, ip_network

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_runtime.columns.arrays import by_value, scatter

_NUMBER = r"(?:0|[1-9][0-9]{0,2})"
_FOUR = "^" + r"\.".join(f"(?P<p{n}>{_NUMBER})" for n in range(4)) + "$"


def cidr_match(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``cidr_match(address, network)``: NULL if the address is not valid."""
    network, texts = call.args[1], args[0]
    assert isinstance(network, Literal)
    inside = ip_network(str(network.value), strict=False)
    matched = pc.extract_regex(texts, _FOUR)
    parts = [pc.cast(pc.struct_field(matched, f"p{n}"), pa.int64()) for n in range(4)]
    fits = reduce(pc.and_, (pc.less_equal(part, 255) for part in parts))
    is_four = np.asarray(pc.fill_null(fits, False))
    if inside.version == 4:
        number = reduce(lambda high, low: pc.add(pc.multiply(high, 256), low), parts)
        first, mask = int(inside.network_address), int(inside.netmask)
        found = pc.equal(pc.bit_wise_and(number, mask), first)
    else:
        found = pa.repeat(False, len(texts))

    def contains(text: str) -> bool | None:
        try:
            address = ip_address(text)
        except ValueError:
            return None
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address) in inside

    others = np.flatnonzero(~is_four)
    values = by_value(texts.take(pa.array(others)), contains, pa.bool_())
    return pc.if_else(pa.array(is_four), found, scatter(values, others, len(texts)))


#: Operation -> kernel.
ADDRESSES: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {"cidr_match": cidr_match}
