"""Numbers as texts by formats such as ``$9,999.99``, as Spark's ``to_char`` writes them."""

from __future__ import annotations

import re
from decimal import Decimal

from anabranch_contract.queries.text_values import NUMBER_FORMAT

_SIGNS = "+-<"


class _NumberText:
    """A number's text under construction, for ``to_char``."""

    def __init__(self) -> None:
        self.text = ""

    def blank(self) -> None:
        """Add a space to the text: before a sign at its end, as signs stand next to digits."""
        sign = self.text[-1:]
        moved = sign != "" and sign in _SIGNS
        self.text = f"{self.text[:-1]} {sign}" if moved else f"{self.text} "

    def after(self, sign: str) -> None:
        """Add a sign to the number's text, before the spaces at the text's end."""
        kept = self.text.rstrip(" ")
        self.text = kept + sign + " " * (len(self.text) - len(kept))

    def digits(self, group: str, given: str) -> None:
        """Add a ``group``'s digits; missing ones are zeros if it begins with ``0``, else spaces."""
        for digit in given:
            if digit != " ":
                self.text += digit
            elif group[0] == "0":
                self.text += "0"
            else:
                self.blank()


def to_char(value: Decimal, pattern: str) -> str:
    """Format ``value`` by ``pattern``; with ``#`` in place of digits if it has too many.

    >>> to_char(Decimal("-1234.5"), "S$9,999.99"), to_char(Decimal(12345), "9,999")
    ('-$1,234.50', '# ###')
    """
    found = NUMBER_FORMAT.fullmatch(pattern.upper())
    assert found is not None, pattern
    before, currency, whole, point, decimals, end = found.groups(default="")
    groups = re.split("[,G]", whole) if whole else []
    room = sum(map(len, groups))
    integer, _, fraction = format(value.copy_abs(), "f").partition(".")
    integer, fraction = integer.lstrip("0"), fraction.rstrip("0")
    fits = len(integer) <= room and len(fraction) <= len(decimals)
    integer = integer.rjust(room) if fits else "#" * room
    fraction = fraction.ljust(len(decimals), "0") if fits else "#" * len(decimals)
    negative = value < 0
    signs = {"S": "-" if negative else "+", "MI": "-" if negative else " "}
    made = _NumberText()
    made.text = signs.get(before, "<" if negative and end == "PR" else "") + currency
    at = 0
    for number, group in enumerate(groups):
        if number and made.text[-1:].isdigit():
            made.text += ","
        elif number:
            made.blank()
        made.digits(group, integer[at : at + len(group)])
        at += len(group)
    if point:
        if made.text.endswith(" "):
            made.text = f"{made.text[:-1]}0"
        made.text += f".{fraction}" if decimals else " "
    if end == "PR" and negative:
        made.after(">")
    elif end == "PR":
        made.text += "  "
    elif end:
        made.after(signs[end])
    return made.text
