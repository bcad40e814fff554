"""Spark's functions of texts: by Arrow where it agrees, else once per distinct value."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from functools import partial
from typing import Any
from urllib.parse import quote_plus, unquote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.text_values import WIDE
from anabranch_runtime.columns.arrays import by_value, present, with_nulls
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ColumnOverflow, ExpressionError
from anabranch_runtime.expressions.functions.number_formats import to_char
from anabranch_runtime.expressions.text import is_ascii

Kernel = Callable[[Call, list[pa.Array]], pa.Array]
#: Maximum number of characters of one text that repeat and pad make.
_LONGEST = 1 << 24
#: Maximum bytes of a column's texts, as Arrow's offsets have 32 bits.
_MOST_BYTES = (1 << 31) - 1


def constants(call: Call) -> list[Any] | None:
    """Return the literal values of all arguments but the first; None if one is NULL or computed."""
    rest = call.args[1:]
    if all(isinstance(arg, Literal) and arg.value is not None for arg in rest):
        return [arg.value for arg in rest if isinstance(arg, Literal)]
    return None


def kernel(
    function: Callable[..., Any], fast: Callable[..., pa.Array | None] | None = None
) -> Kernel:
    """Return the kernel of an SQL function of texts: ``function`` of each row's arguments, or NULL.

    Args:
        fast: computes a whole column if all further arguments are literals; may return None.
    """

    def run(call: Call, args: list[pa.Array]) -> pa.Array:
        target, rest = arrow_type(call.type), constants(call)
        if rest is not None:
            found = fast(args[0], *rest) if fast is not None else None
            if found is not None:
                return found
            return by_value(args[0], lambda value: function(value, *rest), target)
        rows = zip(*(arg.to_pylist() for arg in args), strict=True)
        known: dict[tuple[Any, ...], Any] = {}
        results = list[Any]()
        for row in rows:
            if any(value is None for value in row):
                results.append(None)
                continue
            if row not in known:
                known[row] = function(*row)
            results.append(known[row])
        return pa.array(results, target)

    return run


def replace(text: str, search: str, replacement: str) -> str:
    """Evaluate ``replace(text, search, replacement)``; an empty ``search`` replaces nothing."""
    return text.replace(search, replacement) if search else text


def _replace(text: pa.Array, search: str, replacement: str) -> pa.Array:
    if not search:
        return text
    kernel = partial(pc.replace_substring, pattern=search, replacement=replacement)
    return replaced(kernel, partial(pc.count_substring, pattern=search), text, replacement)


def replaced(
    kernel: Callable[[pa.Array], pa.Array],
    counter: Callable[[pa.Array], pa.Array],
    text: pa.Array,
    replacement: str,
    copies: int = 0,
) -> pa.Array:
    """Return ``kernel(text)``, a replacement in texts, after a check that Arrow lacks: of the size.

    Args:
        counter: counts the matches of a text, which are not empty.
        copies: number of groups of a match that its replacement repeats.

    Raises:
        ColumnOverflow: the results may be longer than 2 GiB.
    """
    added = len(replacement.encode())
    most = text.nbytes * (1 + copies)
    if most + (text.nbytes + len(text)) * added > _MOST_BYTES:
        matches = pc.sum(counter(text)).as_py() or 0
        if most + matches * added > _MOST_BYTES:
            raise ColumnOverflow(
                "too-long", "the texts become longer than 2 GiB", remedy="replace by less"
            )
    return kernel(text)


def split_part(text: str, separator: str, place: int) -> str:
    """Evaluate ``split_part(text, separator, place)``; place 1 is the first, -1 the last.

    Raises:
        ExpressionError: place 0.
    """
    if place == 0:
        raise ExpressionError(
            "bad-arguments", "split_part() has no part 0", remedy="count from 1, or from -1"
        )
    parts = text.split(separator) if separator else [text]
    at = place - 1 if place > 0 else len(parts) + place
    return parts[at] if 0 <= at < len(parts) else ""


def _split_part(text: pa.Array, separator: str, place: int) -> pa.Array | None:
    if place <= 0 or not separator:
        return None
    lists = pc.split_pattern(text, pattern=separator)
    offsets = np.asarray(lists.offsets)
    found = offsets[:-1] + place - 1
    there = found < offsets[1:]
    picked = lists.values.take(pa.array(np.where(there, found, 0), mask=~there))
    return pc.if_else(text.is_valid(), pc.fill_null(picked, ""), pa.scalar(None, pa.string()))


def padded(text: str, length: int, pad: str, *, left: bool) -> str:
    """Evaluate ``lpad`` or ``rpad``: cut or pad ``text`` to ``length`` characters.

    Raises:
        ExpressionError: more than 16 million characters.
    """
    missing = length - len(text)
    if missing <= 0 or not pad:
        return text[: max(length, 0)]
    _check_length(length)
    filling = (pad * (missing // len(pad) + 1))[:missing]
    return filling + text if left else text + filling


def _padded(left: bool) -> Callable[[pa.Array, int, str], pa.Array | None]:
    def run(text: pa.Array, length: int, pad: str) -> pa.Array | None:
        if len(pad) != 1 or not 0 < length <= _LONGEST:
            return None
        cut = pc.utf8_slice_codeunits(text, start=0, stop=length)
        return (pc.utf8_lpad if left else pc.utf8_rpad)(cut, width=length, padding=pad)

    return run


def _check_length(characters: int) -> None:
    if characters > _LONGEST:
        raise ExpressionError(
            "too-long",
            f"a text of {characters} characters is longer than {_LONGEST}",
            remedy="repeat or pad less",
        )


def repeat(text: str, times: int) -> str:
    """Evaluate ``repeat(text, times)``: the text, written so many times.

    Raises:
        ExpressionError: more than 16 million characters.
    """
    _check_length(len(text) * max(times, 0))
    return text * max(times, 0)


def initcap(text: str) -> str:
    """Evaluate ``initcap(text)``: every word after a space begins with a capital letter."""
    return " ".join(map(_capital, text.split(" ")))


def _capital(word: str) -> str:
    first = word[:1]
    # The initial is lower-cased with its word, since a sigma's lower case depends on its place.
    return first.title() + word.lower()[len(first.lower()) :]


def instr(text: str, part: str) -> int:
    """Evaluate ``instr(text, part)``: the position of ``part``, from 1; 0 if it does not occur."""
    return text.find(part) + 1


def _instr(text: pa.Array, part: str) -> pa.Array | None:
    if not is_ascii(text):
        return None
    return pc.add(pc.find_substring(text, pattern=part).cast(pa.int32()), pa.scalar(1, pa.int32()))


def locate(part: str, text: str, start: int) -> int:
    """Evaluate ``locate``: first position of ``part`` from ``start`` on, counted from 1; or 0."""
    if start < 1 or not part:
        return int(start >= 1)
    return text.find(part, start - 1) + 1


def translate(text: str, letters: str, others: str) -> str:
    """Evaluate ``translate``: replace each of ``letters`` by its counterpart, or remove it."""
    table: dict[int, str | None] = {}
    for place, letter in enumerate(letters):
        table.setdefault(ord(letter), others[place] if place < len(others) else None)
    return text.translate(table)


def substring_index(text: str, separator: str, count: int) -> str:
    """Evaluate ``substring_index``: text before the ``count``-th separator; if < 0, after it."""
    if not separator or not count:
        return ""
    if count > 0:
        at = -1
        for _ in range(count):
            at = text.find(separator, at + 1)
            if at < 0:
                return text
        return text[:at]
    at = len(text) - len(separator) + 1
    for _ in range(-count):
        at = text.rfind(separator, 0, max(at + len(separator) - 1, 0))
        if at < 0:
            return text
    return text[at + len(separator) :]


def char(code: int) -> str:
    """Evaluate ``char(code)``: the character with the code; of codes over 255, the last byte."""
    return "" if code < 0 else chr(code % 256)


def sha2(data: bytes, bits: int) -> str | None:
    """Evaluate ``sha2``: hash in hexadecimal; ``bits``: 224, 256 (or 0), 384, 512; others: NULL."""
    name = {0: "sha256", 224: "sha224", 256: "sha256", 384: "sha384", 512: "sha512"}.get(bits)
    return None if name is None else hashlib.new(name, data).hexdigest()


def _trimmed(trim: Callable[..., pa.Array]) -> Kernel:
    """Return a kernel that trims the characters of the second argument, or spaces without one."""
    strip = {pc.utf8_trim: str.strip, pc.utf8_ltrim: str.lstrip, pc.utf8_rtrim: str.rstrip}[trim]

    def fast(text: pa.Array, characters: str = " ") -> pa.Array:
        return trim(text, characters=characters) if characters else text

    def slow(text: str, characters: str) -> str:
        return strip(text, characters) if characters else text

    return kernel(slow, fast)


def _reverse(call: Call, args: list[pa.Array]) -> pa.Array:
    return pc.utf8_reverse(args[0])


def _ascii(call: Call, args: list[pa.Array]) -> pa.Array:
    first = pc.utf8_slice_codeunits(args[0], start=0, stop=1)
    codes = by_value(first, lambda v: ord(v) if v else 0, pa.int32())
    return with_nulls(np.asarray(pc.fill_null(codes, 0)), pa.int32(), present(args[0]))


def hexadecimal(value: Any) -> str:
    """Evaluate ``hex``: hexadecimal digits of a number; of bytes or a text, two per byte."""
    if isinstance(value, int):
        return f"{value & (2**64 - 1):X}"
    data = value.encode() if isinstance(value, str) else value
    return str(data.hex().upper())


def unhex(text: str) -> bytes | None:
    """Return the bytes of hexadecimal digits; None if ``text`` has other characters."""
    if not _HEXADECIMAL.fullmatch(text):
        return None
    return bytes.fromhex(text if len(text) % 2 == 0 else "0" + text)


def format_number(value: Any, digits: int) -> str:
    """Evaluate ``format_number``: commas between thousands, ``digits`` decimal places."""
    if isinstance(value, int):
        value = Decimal(value)
    if isinstance(value, Decimal):
        value = value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_EVEN, WIDE)
    elif not np.isfinite(value):
        return "NaN" if np.isnan(value) else "∞" if value > 0 else "-∞"
    else:
        # As in Java, zeros follow the fewest digits that read back as the same number.
        shortest = Decimal(repr(float(value)))
        value = shortest if -int(shortest.as_tuple().exponent) <= digits else value
    return f"{value:,.{max(digits, 0)}f}"


def _base64(data: bytes) -> str:
    """Base64 in lines of 76 characters, as Spark writes it."""
    text = base64.b64encode(data).decode()
    return "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76))


_HEXADECIMAL = re.compile("[0-9A-Fa-f]*")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
#: Digit of each letter in soundex(); 7: the letter is skipped.
_SOUNDS = dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "01230127022455012623017202", strict=True))
_SPECIFIER = re.compile(r"%([-+ ,0]*)([1-9][0-9]*)?(?:\.([0-9]+))?([sdxf])")


def conv(text: str, given: int, wanted: int) -> str | None:
    """Evaluate ``conv(number, from base, to base)`` on the leading digits of a text; unsigned, or
    signed if the base is negative. None for an empty text, and for bases outside 2 to 36.

    Raises:
        ExpressionError: a number of more than 64 bits.
    """
    text = text.strip(" ")
    if not (2 <= given <= 36 and 2 <= abs(wanted) <= 36 and text):
        return None
    negative = text[0] == "-"
    value = 0
    for letter in text[negative:].lower():
        digit = _DIGITS.find(letter) if letter.isascii() else -1
        if not 0 <= digit < given:
            break
        value = value * given + digit
        if value >= 1 << 64:
            raise ExpressionError(
                "overflow",
                f"conv() of {text[:60]!r} has more than 64 bits",
                remedy="filter such rows out first",
            )
    if negative and wanted > 0:
        value = (1 << 64) - 1 if value >> 63 else -value & (1 << 64) - 1
    if wanted < 0 and value >> 63:
        value, negative = (1 << 64) - value, True
    digits = ""
    while value or not digits:
        value, digit = divmod(value, abs(wanted))
        digits = _DIGITS[digit] + digits
    return ("-" if negative and wanted < 0 else "") + digits.upper()


def soundex(text: str) -> str:
    """Evaluate ``soundex``: a word's code (a letter and three digits); other texts unchanged."""
    first = text[:1].upper() if text[:1].isascii() else ""
    if first not in _SOUNDS:
        return text
    code, last = first, _SOUNDS[first]
    for byte in text.encode()[1:]:
        sound = _SOUNDS.get(chr(byte).upper() if byte < 128 else "")
        if sound is None:
            last = "0"
        elif sound != "7":
            if sound not in ("0", last):
                code += sound
                if len(code) == 4:
                    break
            last = sound
    return code.ljust(4, "0")


def overlay(text: str, other: str, place: int, length: int) -> str:
    """Evaluate ``overlay``: replace ``length`` characters of ``text`` from ``place`` on by
    ``other``; a negative ``length`` means that of ``other``."""
    after = place + (len(other) if length < 0 else length)
    start = after - 1 if after > 0 else max(len(text) + after, 0) if after else 0
    return text[: max(place - 1, 0)] + other + text[start:]


def _format_string(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``format_string(specifier, value)``, by the rules of Java's formatter."""
    specifier = call.args[0]
    assert isinstance(specifier, Literal)
    found = _SPECIFIER.fullmatch(str(specifier.value))
    assert found is not None
    flags, width, digits, kind = found.groups()
    places = None if digits is None else int(digits)

    def written(value: Any) -> str:
        if kind == "s":
            text = _cut(value, places)
        elif kind == "x":
            text = f"{value & ((1 << args[1].type.bit_width) - 1):x}"
        else:
            text = _number(value, flags, 6 if places is None else places)
        return _justified(text, flags, int(width or 0), number=kind != "s")

    return by_value(args[1], written, pa.string())


def _cut(text: str, units: int | None) -> str:
    if units is None:
        return text
    return (
        text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "replace").replace("\ufffd", "?")
    )


def _number(value: Any, flags: str, places: int) -> str:
    """Return the digits of an integer or a double, with its sign, for ``format_string``."""
    if isinstance(value, int):
        negative, digits = value < 0, f"{abs(value):,}"
    else:
        number = float(value)
        if np.isnan(number):
            return "NaN"
        negative, digits = bool(np.signbit(number)), "Infinity"
        if np.isfinite(number):
            exact = Decimal(repr(abs(number)))
            exact = exact.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP, WIDE)
            digits = f"{exact:,.{places}f}"
    if "," not in flags:
        digits = digits.replace(",", "")
    sign = "-" if negative else "+" if "+" in flags else " " if " " in flags else ""
    return sign + digits


def _justified(text: str, flags: str, width: int, *, number: bool) -> str:
    missing = max(width - len(text.encode("utf-16-le")) // 2, 0)
    if "-" in flags:
        return text + " " * missing
    if number and "0" in flags and not text.endswith(("NaN", "Infinity")):
        sign = len(text) - len(text.lstrip("+- "))
        return text[:sign] + "0" * missing + text[sign:]
    return " " * missing + text


def levenshtein(left: str, right: str) -> int:
    """Evaluate ``levenshtein``: least insertions, deletions, replacements between two texts.

    Raises:
        ExpressionError: texts whose lengths have a product above a million.
    """
    if len(left) * len(right) > 1_000_000:
        raise ExpressionError(
            "too-long", "texts are too long for levenshtein()", remedy="compare left(x, 1000)"
        )
    row = list(range(len(right) + 1))
    for number, letter in enumerate(left, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            before, row[place] = (
                row[place],
                min(row[place] + 1, row[place - 1] + 1, before + (letter != other)),
            )
    return row[-1]


def url_decode(text: str) -> str:
    """Evaluate ``url_decode``: decode a URL-encoded text.

    Raises:
        ExpressionError: a % without two hexadecimal digits.
    """
    if re.search("%(?![0-9A-Fa-f]{2})", text):
        raise ExpressionError(
            "bad-cast", f"{text[:60]!r} is not URL-encoded", remedy="filter such rows out first"
        )
    return unquote_plus(text)


def url_encode(text: str) -> str:
    """Evaluate ``url_encode``: encode a text for use in a URL."""
    return quote_plus(text, safe="*").replace("~", "%7E")


#: Operation -> kernel.
TEXTS: dict[str, Kernel] = {
    "ascii": _ascii,
    "base64": kernel(_base64),
    "bin": kernel(lambda value: f"{value & (2**64 - 1):b}"),
    "bit_length": kernel(lambda data: 8 * len(data)),
    "btrim": _trimmed(pc.utf8_trim),
    "char": kernel(char),
    "conv": kernel(conv),
    "crc32": kernel(binascii.crc32),
    "format_number": kernel(format_number),
    "format_string": _format_string,
    "hex": kernel(hexadecimal),
    "initcap": kernel(initcap),
    "instr": kernel(instr, _instr),
    "levenshtein": kernel(levenshtein),
    "locate": kernel(locate),
    "lpad": kernel(lambda text, n, pad: padded(text, n, pad, left=True), _padded(True)),
    "ltrim": _trimmed(pc.utf8_ltrim),
    "md5": kernel(lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest()),
    "octet_length": kernel(len),
    "overlay": kernel(overlay),
    "repeat": kernel(repeat),
    "replace": kernel(replace, _replace),
    "reverse": _reverse,
    "rpad": kernel(lambda text, n, pad: padded(text, n, pad, left=False), _padded(False)),
    "rtrim": _trimmed(pc.utf8_rtrim),
    "sha1": kernel(lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest()),
    "sha2": kernel(sha2),
    "soundex": kernel(soundex),
    "split_part": kernel(split_part, _split_part),
    "substring_index": kernel(substring_index),
    "to_char": kernel(to_char),
    "translate": kernel(translate),
    "unhex": kernel(unhex),
    "url_decode": kernel(url_decode),
    "url_encode": kernel(url_encode),
}
#: Operations that can fail on a value.
FALLIBLE = frozenset({
    "conv", "levenshtein", "lpad", "repeat", "rpad", "split_part", "url_decode",
})  # fmt: skip
