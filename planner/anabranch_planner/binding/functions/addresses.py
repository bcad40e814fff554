"""Signatures of the functions of internet addresses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from ipaddress import ip_network

from anabranch_contract.queries.expressions import BOOLEAN, Call, Expr
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    Signature,
    bad_literal,
    text_of,
)


def _network(args: list[Expr]) -> list[Expr]:
    try:
        ip_network(text_of(args[1]), strict=False)
    except ValueError:
        raise bad_literal(
            "cidr_match", args[1], "it is no network", "write one such as '10.0.0.0/8', 'fd00::/8'"
        ) from None
    return args


_MATCH = Signature("cidr_match", (Argument.TEXT, Argument.PATTERN), BOOLEAN, check=_network)


def _matched(args: Sequence[Expr]) -> Expr:
    """``cidr_match(address, network, ...)``: whether one of the networks has the address."""
    found = [_MATCH([args[0], network]) for network in args[1:]]
    return reduce(lambda left, right: Call("or", (left, right), BOOLEAN), found)


#: Function -> rewriting.
ADDRESSES: dict[str, Rewriting] = {"cidr_match": Rewriting(2, None, _matched)}
