"""Exact sums of weighted values, in words of a group's state row.

Integers and decimals are added as two's complements of 128 and 192 bits. Floats are added as
fixed-point numbers of 384 bits with the last bit 2^-200, so that sums depend neither on the order
of the rows nor on deleted rows, and are rounded once. Floats with bits outside this range (nearly
all are below 1e-44 or above 1e27 in size) are added as doubles with compensation, in a sum *beside*
the number. NaN and infinities are counted.

Words of a float sum: 6 of the number, 2 doubles of the sum beside, and counts: of values beside, of
NaN, of infinity, of negative infinity.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
U64 = NDArray[np.uint64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Words of a float sum, and of its fixed-point number; exponent of the number's last bit.
FLOAT_WORDS, FIXED, LAST_BIT = 12, 6, -200
#: Words of each integer in a float sum; the two doubles after the first are no integers.
FLOAT_NUMBERS = (FIXED, 1, 1, 1, 1, 1, 1)
#: Positions of the words after the fixed-point number.
_BESIDE, _REST, BESIDE_COUNT, _NAN, _PLUS, _MINUS = 6, 7, 8, 9, 10, 11
#: Greatest shift of a mantissa, which leaves 41 bits for the sum of weights.
_MOST_SHIFT = 290
_LOW32 = np.uint64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def _product(a: Any, b: Any) -> Any:
    """Return the 128-bit product of two unsigned words, as its low and high words."""
    s = np.uint64(32)
    a0, a1 = a & _LOW32, a >> s
    b0, b1 = b & _LOW32, b >> s
    p00, p01, p10, p11 = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    middle = (p00 >> s) + (p01 & _LOW32) + (p10 & _LOW32)
    low = (p00 & _LOW32) | (middle << s)
    high = p11 + (p01 >> s) + (p10 >> s) + (middle >> s)
    return low, high


@njit(cache=True, nogil=True)
def _magnitude(w: int) -> Any:
    return np.uint64(w) if w >= 0 else np.uint64(0) - np.uint64(w)


@njit(cache=True, nogil=True)
def _plus(state: U64, r: int, first: int, end: int, a: Any, b: Any, c: Any) -> None:
    """Add the unsigned three-word number (a, b, c) to words ``first`` to ``end`` of row ``r``."""
    carry = np.uint64(0)
    for k in range(first, end):
        x = a if k == first else b if k == first + 1 else c if k == first + 2 else np.uint64(0)
        s = state[r, k] + x
        over = np.uint64(1) if s < x else np.uint64(0)
        t = s + carry
        if t < s:
            over = np.uint64(1)
        state[r, k] = t
        carry = over


@njit(cache=True, nogil=True)
def _minus(state: U64, r: int, first: int, end: int, a: Any, b: Any, c: Any) -> None:
    """Subtract the unsigned three-word number (a, b, c) from the words ``first`` to ``end``."""
    borrow = np.uint64(0)
    for k in range(first, end):
        x = a if k == first else b if k == first + 1 else c if k == first + 2 else np.uint64(0)
        old = state[r, k]
        s = old - x
        under = np.uint64(1) if old < x else np.uint64(0)
        if s < borrow:
            under = np.uint64(1)
        state[r, k] = s - borrow
        borrow = under


@njit(cache=True, nogil=True)
def subtract(state: U64, others: U64, carries: Bools) -> None:
    """Subtract the sums in ``others`` from those in ``state``, in place.

    Args:
        carries: whether a word continues the number in the word before it.
    """
    zero, one = np.uint64(0), np.uint64(1)
    for r in range(len(state)):
        borrow = zero
        for w in range(state.shape[1]):
            if not carries[w]:
                borrow = zero
            old, x = state[r, w], others[r, w]
            s = old - x
            under = one if old < x or s < borrow else zero
            state[r, w] = s - borrow
            borrow = under


@njit(cache=True, nogil=True)
def add_counts(state: Ints, at: int, index: Ints, valid: Bools, weights: Ints) -> None:
    """Add the weights of valid rows (no mask: all) to the word ``at`` of their state rows."""
    if len(valid) == 0:
        for i in range(len(index)):
            state[index[i], at] += weights[i]
    else:
        for i in range(len(index)):
            if valid[i]:
                state[index[i], at] += weights[i]


@njit(cache=True, nogil=True)
def add_integers(
    state: U64, at: int, index: Ints, values: Ints, valid: Bools, weights: Ints
) -> None:
    """Add weighted integers to the two-word sums from ``at`` on."""
    zero = np.uint64(0)
    for i in range(len(index)):
        if len(valid) > 0 and not valid[i]:
            continue
        low, high = _product(_magnitude(values[i]), _magnitude(weights[i]))
        if (values[i] < 0) == (weights[i] < 0):
            _plus(state, index[i], at, at + 2, low, high, zero)
        else:
            _minus(state, index[i], at, at + 2, low, high, zero)


@njit(cache=True, nogil=True)
def add_decimal(state: U64, r: int, at: int, low: Any, signed: int, weight: int) -> None:
    """Add a weighted 128-bit integer to the three-word sum from ``at`` on of the row ``r``."""
    zero, one = np.uint64(0), np.uint64(1)
    high = np.uint64(signed)
    if signed < 0:
        low = zero - low
        high = ~high + (one if low == zero else zero)
    w = _magnitude(weight)
    a, b = _product(low, w)
    c, d = _product(high, w)
    middle = b + c
    top = d + (one if middle < b else zero)
    if (signed < 0) == (weight < 0):
        _plus(state, r, at, at + 3, a, middle, top)
    else:
        _minus(state, r, at, at + 3, a, middle, top)


@njit(cache=True, nogil=True)
def add_decimals(
    state: U64, at: int, index: Ints, lows: U64, highs: Ints, valid: Bools, weights: Ints
) -> None:
    """Add weighted 128-bit integers (decimals) to the three-word sums from ``at`` on."""
    for i in range(len(index)):
        if len(valid) == 0 or valid[i]:
            add_decimal(state, index[i], at, lows[i], highs[i], weights[i])


@njit(cache=True, nogil=True)
def add_float(state: U64, floats: Floats, r: int, at: int, x: float, w: int) -> None:
    """Add a weighted float to the float sum from ``at`` on of the row ``r``."""
    if x == 0.0:
        return
    one = np.uint64(1)
    if math.isnan(x) or math.isinf(x):
        kind = _NAN if math.isnan(x) else _PLUS if x > 0 else _MINUS
        state[r, at + kind] += np.uint64(w)
        return
    fraction, exponent = math.frexp(abs(x))
    mantissa = np.uint64(fraction * 9007199254740992.0)
    shift = exponent - 53 - LAST_BIT
    if shift < 0 and shift > -53 and mantissa & ((one << np.uint64(-shift)) - one) == 0:
        mantissa >>= np.uint64(-shift)
        shift = 0
    if shift < 0 or shift > _MOST_SHIFT:
        value = x * w
        total = floats[r, at + _BESIDE]
        s = total + value
        back = s - total
        floats[r, at + _BESIDE] = s
        floats[r, at + _REST] += (total - (s - back)) + (value - back)
        state[r, at + BESIDE_COUNT] += np.uint64(w)
        if state[r, at + BESIDE_COUNT] == 0:
            floats[r, at + _BESIDE] = 0.0
            floats[r, at + _REST] = 0.0
        return
    low, high = _product(mantissa, _magnitude(w))
    first = at + (shift >> 6)
    bits = np.uint64(shift & 63)
    a, b, c = low, high, np.uint64(0)
    if bits != 0:
        rest = np.uint64(64) - bits
        a = low << bits
        b = (high << bits) | (low >> rest)
        c = high >> rest
    if (x < 0) == (w < 0):
        _plus(state, r, first, at + FIXED, a, b, c)
    else:
        _minus(state, r, first, at + FIXED, a, b, c)


@njit(cache=True, nogil=True)
def add_floats(
    state: U64, floats: Floats, at: int, index: Ints, values: Floats, valid: Bools, weights: Ints
) -> None:
    """Add weighted floats to the float sum from ``at`` on; ``floats``: the state as doubles."""
    for i in range(len(index)):
        if len(valid) == 0 or valid[i]:
            add_float(state, floats, index[i], at, values[i], weights[i])


@njit(cache=True, nogil=True)
def add_products(
    state: U64,
    floats: Floats,
    at: int,
    index: Ints,
    x: Floats,
    y: Floats,
    valid: Bools,
    weights: Ints,
) -> None:
    """Add weighted products ``x * y``, exact to the last bit, to the float sum from ``at`` on."""
    for i in range(len(index)):
        if len(valid) > 0 and not valid[i]:
            continue
        product, rest = _exact_product(x[i], y[i])
        add_float(state, floats, index[i], at, product, weights[i])
        if rest != 0.0 and math.isfinite(rest):
            add_float(state, floats, index[i], at, rest, weights[i])


@njit(cache=True, nogil=True)
def add_powers(
    state: U64,
    floats: Floats,
    at: int,
    index: Ints,
    values: Floats,
    valid: Bools,
    weights: Ints,
    power: int,
) -> None:
    """Add weighted powers of ``values``, the third or fourth, to the float sum from ``at`` on. A
    power is an exact sum of up to eight doubles, unless one is below the least double."""
    for i in range(len(index)):
        if len(valid) > 0 and not valid[i]:
            continue
        x, w, r = values[i], weights[i], index[i]
        square, rest = _exact_product(x, x)
        if not (math.isfinite(square) and math.isfinite(square * (x if power == 3 else square))):
            add_float(state, floats, r, at, square * (x if power == 3 else square), w)
            continue
        if power == 3:
            _add_product(state, floats, r, at, square, x, w)
            _add_product(state, floats, r, at, rest, x, w)
        else:
            _add_product(state, floats, r, at, square, square, w)
            _add_product(state, floats, r, at, square, rest, w)
            _add_product(state, floats, r, at, rest, square, w)
            _add_product(state, floats, r, at, rest, rest, w)


@njit(cache=True, nogil=True)
def _add_product(state: U64, floats: Floats, r: int, at: int, x: float, y: float, w: int) -> None:
    product, rest = _exact_product(x, y)
    add_float(state, floats, r, at, product, w)
    if rest != 0.0 and math.isfinite(rest):
        add_float(state, floats, r, at, rest, w)


@njit(cache=True, nogil=True)
def add_bits(state: Ints, at: int, index: Ints, values: Ints, valid: Bools, weights: Ints) -> None:
    """Add the weights of values that have bit ``b`` set to the word ``at + b``, for all 64 bits."""
    for i in range(len(index)):
        if len(valid) > 0 and not valid[i]:
            continue
        for b in range(64):
            if (values[i] >> b) & 1:
                state[index[i], at + b] += weights[i]


@njit(cache=True, nogil=True)
def _exact_product(x: float, y: float) -> Any:
    """Return the product of two doubles as an unevaluated sum of two doubles (Dekker, 1971)."""
    p = x * y
    a = 134217729.0 * x
    b = 134217729.0 * y
    if not (math.isfinite(p) and math.isfinite(a) and math.isfinite(b)):
        return p, 0.0
    x1 = a - (a - x)
    x2 = x - x1
    y1 = b - (b - y)
    y2 = y - y1
    return p, ((x1 * y1 - p) + x1 * y2 + x2 * y1) + x2 * y2


@njit(cache=True, nogil=True)
def _leading(state: U64, r: int, at: int) -> Any:
    """Return a float sum: sign, top 64 bits, next 64 bits, whether a lower bit is 1, exponent."""
    zero, one = np.uint64(0), np.uint64(1)
    negative = state[r, at + FIXED - 1] >> np.uint64(63) == one
    words = np.empty(FIXED, np.uint64)
    carry = one
    for k in range(FIXED):
        words[k] = state[r, at + k]
        if negative:
            words[k] = ~words[k] + carry
            carry = one if carry == one and words[k] == zero else zero
    top = FIXED - 1
    while top >= 0 and words[top] == zero:
        top -= 1
    if top < 0:
        return 0.0, zero, zero, False, 0
    shift = zero
    word = words[top]
    while word >> np.uint64(63) == zero:
        word <<= one
        shift += one
    second = words[top - 1] if top > 0 else zero
    third = words[top - 2] if top > 1 else zero
    more = False
    if shift != zero:
        back = np.uint64(64) - shift
        word |= second >> back
        second = (second << shift) | (third >> back)
        more = third << shift != zero
    else:
        more = third != zero
    for k in range(top - 2):
        more |= words[k] != zero
    sign = -1.0 if negative else 1.0
    return sign, word, second, more, LAST_BIT + 64 * top - np.int64(shift)


@njit(cache=True, nogil=True)
def _special(state: U64, r: int, at: int) -> float:
    """Return a float sum that is NaN or infinite because of some values; else 0."""
    nans, plus, minus = (
        np.int64(state[r, at + _NAN]),
        np.int64(state[r, at + _PLUS]),
        np.int64(state[r, at + _MINUS]),
    )
    if nans > 0 or (plus > 0 and minus > 0):
        return math.nan
    return math.inf if plus > 0 else -math.inf if minus > 0 else 0.0


@njit(cache=True, nogil=True)
def float_sum(state: U64, floats: Floats, r: int, at: int) -> float:
    """Return the float sum from ``at`` on of the row ``r``, rounded to the nearest double."""
    one = np.uint64(1)
    special = _special(state, r, at)
    if special != 0.0:
        return special
    sign, word, second, more, exponent = _leading(state, r, at)
    value = 0.0
    if sign != 0.0:
        kept = word >> np.uint64(11)
        rest = word & np.uint64(0x7FF)
        half = np.uint64(0x400)
        beyond = second != 0 or more
        if rest > half or (rest == half and (beyond or kept & one == one)):
            kept += one
        value = sign * math.ldexp(float(kept), exponent + 11)
    return value + floats[r, at + _BESIDE] + floats[r, at + _REST]


@njit(cache=True, nogil=True)
def float_sums(state: U64, floats: Floats, at: int, out: Floats) -> None:
    """Write the float sums from ``at`` on to ``out``."""
    for r in range(len(out)):
        out[r] = float_sum(state, floats, r, at)


@njit(cache=True, nogil=True)
def _pair(state: U64, floats: Floats, r: int, at: int) -> Any:
    """Return the float sum from ``at`` on as an unevaluated sum of two doubles."""
    sign, word, second, _, exponent = _leading(state, r, at)
    high = low = 0.0
    if sign != 0.0:
        high = sign * math.ldexp(float(word >> np.uint64(11)), exponent + 11)
        tail = ((word & np.uint64(0x7FF)) << np.uint64(42)) | (second >> np.uint64(22))
        low = sign * math.ldexp(float(tail), exponent + 11 - 53)
    return high + floats[r, at + _BESIDE], low + floats[r, at + _REST]


@njit(cache=True, nogil=True)
def central_moments(
    state: U64, floats: Floats, counts: Ints, x: int, y: int, xy: int, out: Floats, doubtful: Bools
) -> None:
    """Write ``n * sum(x y) - sum(x) * sum(y)`` of each group to ``out``.

    Args:
        counts: n per row. ``x``, ``y``, ``xy``: positions of the float sums.
        doubtful: set to True where digits cancel, so that an exact computation is needed.
    """
    for r in range(len(out)):
        for at in (x, y, xy):
            if _special(state, r, at) != 0.0:
                out[r] = math.nan
        if math.isnan(out[r]) or counts[r] <= 1:
            continue
        n = float(counts[r])
        a, b = _pair(state, floats, r, xy)
        p, q = _exact_product(n, a)
        q += n * b
        c, d = _pair(state, floats, r, x)
        e, f = _pair(state, floats, r, y)
        s, t = _exact_product(c, e)
        t += c * f + d * e
        u = p - s
        back = u - p
        v = (p - (u - back)) + (-s - back)
        out[r] = u + (v + (q - t))
        size = abs(p) + abs(s)
        doubtful[r] = math.isfinite(size) and abs(out[r]) <= size * 2.0**-80
