"""Kernels of arrays, structs and maps, over the elements of all rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrays import (
    Bools,
    Ints,
    all_present,
    canonical,
    present,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import elements, limits_of, lists, maps, owners, structs
from anabranch_runtime.errors import ExpressionError

#: Maximum number of elements of an array that sequence() or array_repeat() makes.
MOST = 1_000_000
#: Maximum number of elements of all arrays that these functions make for a batch of rows.
MOST_TOGETHER = 20_000_000


def _ints(column: pa.Array) -> Ints:
    """Return a function's integer argument as an int64 array, with 0 for NULL."""
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0).to_numpy(), np.int64)


def _taken(values: pa.Array, at: Ints, good: Bools) -> pa.Array:
    """Return the array elements ``values`` at positions ``at``, NULL where ``good`` is False."""
    return values.take(pa.array(np.where(good, at, 0), mask=~good))


def _all(valid: Bools | None, rows: int) -> Bools:
    return np.ones(rows, np.bool_) if valid is None else valid


def _outside(row: int, limits: Ints, place: int, remedy: str) -> ExpressionError:
    return ExpressionError(
        "no-element",
        f"an array has {limits[row + 1] - limits[row]} elements, and none at place {place}",
        remedy=remedy,
    )


# --- parts --------------------------------------------------------------------------------------


def _field(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``struct.field``; for an array of structs, return the array of the fields."""
    kind = call.args[0].type
    name = call.args[1]
    assert isinstance(name, Literal)
    inside = kind.element if kind.kind is TypeKind.ARRAY else kind
    at = [one for one, _ in inside.fields].index(str(name.value))
    if kind.kind is TypeKind.STRUCT:
        return pc.struct_field(args[0], [at])
    limits, values = elements(args[0])
    return lists(limits, pc.struct_field(values, [at]), present(args[0]), arrow_type(call.type))


def _item(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``array[place]``, with places from 0.

    Raises:
        ExpressionError: an array has no such element.
    """
    limits, values = elements(args[0])
    place, valid = _ints(args[1]), _all(all_present(*args), len(args[0]))
    good = valid & (place >= 0) & (place < np.diff(limits))
    if (valid & ~good).any():
        row = int(np.flatnonzero(valid & ~good)[0])
        raise _outside(row, limits, int(place[row]), f"write get({', '.join(map(str, call.args))})")
    return _taken(values, limits[:-1] + place, good)


def _get(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``get(array, place)``, with places from 0; NULL if there is no such element."""
    limits, values = elements(args[0])
    place, valid = _ints(args[1]), _all(all_present(*args), len(args[0]))
    return _taken(values, limits[:-1] + place, valid & (place >= 0) & (place < np.diff(limits)))


def _element_at(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``element_at(array, place)``, with places from 1, or from -1 at the end; a third
    argument makes the result NULL if there is no such element.

    Raises:
        ExpressionError: an array has no such element, or the place is 0.
    """
    limits, values = elements(args[0])
    place, valid = _ints(args[1]), _all(all_present(*args), len(args[0]))
    at = np.where(place > 0, limits[:-1] + place - 1, limits[1:] + place)
    good = valid & (place != 0) & (at >= limits[:-1]) & (at < limits[1:])
    wrong = valid & (place == 0) if len(args) > 2 else valid & ~good
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        given = ", ".join(map(str, call.args))
        raise _outside(row, limits, int(place[row]), f"write try_element_at({given})")
    return _taken(values, at, good)


def _map_value(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``map[key]``: NULL if the map has no such key."""
    limits, pairs = elements(args[0])
    row = owners(limits)
    same = _equal(pc.struct_field(pairs, [0]), args[1].take(pa.array(row)))
    hits = np.flatnonzero(np.asarray(pc.fill_null(same, False)))
    at, good = np.zeros(len(args[0]), np.int64), np.zeros(len(args[0]), np.bool_)
    at[row[hits]], good[row[hits]] = hits, True
    return _taken(pc.struct_field(pairs, [1]), at, good & _all(present(args[1]), len(good)))


def _size(_call: Call, args: list[pa.Array]) -> pa.Array:
    sizes = np.diff(elements(args[0])[0]).astype(np.int32)
    return with_nulls(sizes, pa.int32(), present(args[0]))


def _part_of_pairs(at: int | None) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        limits, pairs = elements(args[0])
        values = pairs if at is None else pc.struct_field(pairs, [at])
        return lists(limits, values, present(args[0]), arrow_type(call.type))

    return kernel


# --- construction -------------------------------------------------------------------------------


def _array(call: Call, args: list[pa.Array]) -> pa.Array:
    if not args:
        return pa.array([[]], arrow_type(call.type))
    rows, count = len(args[0]), len(args)
    place = np.arange(rows)[:, None] + rows * np.arange(count)
    values = pa.concat_arrays(args).take(pa.array(place.ravel()))
    return lists(np.arange(rows + 1) * count, values, None, arrow_type(call.type))


def _struct(call: Call, args: list[pa.Array]) -> pa.Array:
    return structs(args, None, arrow_type(call.type))


def _map(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``map_from_arrays(keys, values)``, an SQL function.

    Raises:
        ExpressionError: a key is NULL or twice in a map, or has no value, or a value no key.
    """
    (limits, keys), (others, values) = map(elements, args)
    valid = all_present(*args)
    if valid is not None and (np.diff(limits)[~valid].any() or np.diff(others)[~valid].any()):
        kept = pa.array(np.where(valid, np.arange(len(valid)), 0), mask=~valid)
        (limits, keys), (others, values) = (elements(one.take(kept)) for one in args)
    if (limits != others).any():
        raise ExpressionError(
            "bad-map", "a map has not as many values as keys", remedy="give each key a value"
        )
    return unique_keys(limits, keys, values, valid)


def _map_of_entries(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``map_from_entries(array of structs)``; NULL where an entry is NULL.

    Raises:
        ExpressionError: a key is NULL or twice in a map.
    """
    limits, entries, valid = _without_nulls(args[0])
    keys, values = (pc.struct_field(entries, [at]) for at in (0, 1))
    return unique_keys(limits, keys, values, valid)


def unique_keys(limits: Ints, keys: pa.Array, values: pa.Array, valid: Bools | None) -> pa.Array:
    """Return the map column with offsets ``limits`` over keys and values.

    Raises:
        ExpressionError: a key is NULL or twice in a map.
    """
    if keys.null_count:
        raise ExpressionError("bad-map", "a key of a map is NULL", remedy="use coalesce(key, '')")
    if len(_firsts(limits, keys)) < len(keys):
        raise ExpressionError("bad-map", "a key is twice in a map", remedy="give each key once")
    return maps(limits, canonical(keys), values, valid)


def zipped(left: pa.Array, right: pa.Array) -> tuple[Ints, pa.Array, list[pa.Array], Bools | None]:
    """Return per row the union of the keys of two maps: offsets, keys, the values in either map,
    and the mask of rows where neither map is NULL. The keys of the left map come first."""
    valid = all_present(left, right)
    parts = [elements(one) for one in (left, right)]
    both = [[pc.struct_field(pairs, [at]) for _, pairs in parts] for at in (0, 1)]
    codes, _ = _codes(pa.concat_arrays(both[0]))
    row = np.concatenate([owners(limits) for limits, _ in parts])
    kept = np.arange(len(row)) if valid is None else np.flatnonzero(valid[row])
    _, first, group = np.unique(
        row[kept] * (len(row) + 2) + codes[kept], return_index=True, return_inverse=True
    )
    order = np.lexsort((first, row[kept][first]))
    places = np.full((2, len(first)), -1)
    half = len(parts[0][1])
    for side, (start, within) in enumerate(((0, kept < half), (half, kept >= half))):
        # If a key occurs several times in a row, the first one determines the value.
        places[side, group[within][::-1]] = kept[within][::-1] - start
    values = [_taken(of, at[order], at[order] >= 0) for of, at in zip(both[1], places, strict=True)]
    keys = pa.concat_arrays(both[0]).take(pa.array(kept[first][order]))
    sizes = np.bincount(row[kept][first], minlength=len(left))
    return limits_of(sizes), keys, values, valid


def _concat(call: Call, args: list[pa.Array]) -> pa.Array:
    parts = [elements(arg) for arg in args]
    valid = all_present(*args)
    sizes = np.stack([np.diff(limits) for limits, _ in parts], axis=1)
    if valid is not None:
        sizes[~valid] = 0
    bases = np.cumsum([0, *(len(values) for _, values in parts[:-1])])
    starts = np.stack([limits[:-1] for limits, _ in parts], axis=1) + bases
    place = _ranges(starts.ravel(), sizes.ravel())
    values = pa.concat_arrays([values for _, values in parts]).take(pa.array(place))
    limits = limits_of(sizes.sum(axis=1))
    return lists(limits, values, valid, arrow_type(call.type))


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """Return the concatenated positions ``start, …, start + size - 1`` of all pairs."""
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) - np.repeat(before - starts, sizes)


def _sequence(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``sequence(start, stop[, step])``: an array from ``start`` to ``stop``.

    Raises:
        ExpressionError: the step leads away from the stop, or there are too many elements.
    """
    valid = _all(all_present(*args), len(args[0]))
    start, stop = _ints(args[0]), _ints(args[1])
    step = _ints(args[2]) if len(args) > 2 else np.where(stop >= start, 1, -1)
    away = valid & (((step > 0) & (start > stop)) | ((step < 0) & (start < stop)))
    if (away | valid & (step == 0) & (start != stop)).any():
        raise ExpressionError(
            "bad-sequence",
            "the step of a sequence leads away from its end",
            remedy="write a positive step for a rising sequence, a negative one for a falling one",
        )
    # A distance may overflow int64; its bits read as unsigned are the correct distance.
    distance = np.where(step > 0, stop - start, start - stop).view(np.uint64)
    counts = distance // np.abs(np.where(step == 0, 1, step)).view(np.uint64)
    sizes = _bound(np.where(valid, np.minimum(counts, 2**40).astype(np.int64) + 1, 0))
    limits = limits_of(sizes)
    values = np.repeat(start, sizes) + _ranges(np.zeros_like(sizes), sizes) * np.repeat(step, sizes)
    made = pa.array(values).cast(arrow_type(call.type.element))
    return lists(limits, made, valid, arrow_type(call.type))


def _repeat(call: Call, args: list[pa.Array]) -> pa.Array:
    valid = _all(present(args[1]), len(args[0]))
    sizes = _bound(np.where(valid, np.maximum(_ints(args[1]), 0), 0))
    values = args[0].take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
    limits = limits_of(sizes)
    return lists(limits, values, valid, arrow_type(call.type))


def _bound(sizes: npt.NDArray[Any]) -> Ints:
    """Return ``sizes`` of arrays, after a check that neither one nor all together are too large.

    Raises:
        ExpressionError: they are too large.
    """
    longest, together = int(sizes.max(initial=0)), float(sizes.sum(dtype=np.float64))
    if longest > MOST or together > MOST_TOGETHER:
        raise ExpressionError(
            "too-long",
            f"an array would have {longest} elements, and all of a batch {together:.0f}",
            remedy=f"stay below {MOST} in one, and {MOST_TOGETHER} in all of a batch",
        )
    return sizes.astype(np.int64)


# --- search and order ---------------------------------------------------------------------------


def _codes(values: pa.Array) -> tuple[Ints, Bools]:
    """Return a number per array element, equal for equal elements, and the mask of non-NULLs."""
    encoded = canonical(values).dictionary_encode()
    codes = pc.fill_null(encoded.indices.cast(pa.int64()), len(encoded.dictionary)).to_numpy()
    return np.asarray(codes, np.int64), _all(present(values), len(values))


def _equal(left: pa.Array, right: pa.Array) -> pa.Array:
    """Compare array elements: NaN equals NaN; the result is NULL if either side is NULL."""
    codes, known = _codes(pa.concat_arrays([left, right]))
    half = len(left)
    return pa.array(codes[:half] == codes[half:], mask=~(known[:half] & known[half:]))


def _ranks(values: pa.Array) -> Ints:
    """Return the dense rank of each array element, from 1, with NaN last; 0 for NULL."""
    if values.null_count == len(values):
        return np.zeros(len(values), np.int64)
    ranks = pc.rank(canonical(values), sort_keys="ascending", tiebreaker="dense")
    return np.where(_all(present(values), len(values)), ranks.to_numpy().astype(np.int64), 0)


def _firsts(limits: Ints, values: pa.Array) -> Ints:
    """Return, in ascending order, the position of each row's first occurrence of each element."""
    codes, _ = _codes(values)
    _, first = np.unique(owners(limits) * (len(values) + 2) + codes, return_index=True)
    return np.sort(first)


def _kept(
    kind: DataType, limits: Ints, values: pa.Array, at: Ints, valid: Bools | None
) -> pa.Array:
    """Return array columns (of type ``kind``) with only the elements at positions ``at``."""
    counts = np.bincount(owners(limits)[at], minlength=len(limits) - 1)
    return lists(limits_of(counts), values.take(pa.array(at)), valid, arrow_type(kind))


def _matches(args: list[pa.Array]) -> tuple[Ints, pa.Array, Ints, Bools, Bools]:
    """Compare arrays with a value per row: return the arrays' offsets, elements and elements' rows,
    and the masks of elements that equal the row's value, and that are NULL."""
    limits, values = elements(args[0])
    row = owners(limits)
    same = _equal(values, args[1].take(pa.array(row)))
    nulls = ~_all(present(values), len(values))
    return limits, values, row, np.asarray(pc.fill_null(same, False)), nulls


def _contains(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``array_contains``: NULL if no element matches but some element is NULL."""
    _, _, row, same, nulls = _matches(args)
    rows = len(args[0])
    found = np.bincount(row[same], minlength=rows) > 0
    known = found | (np.bincount(row[nulls], minlength=rows) == 0)
    return pa.array(found, mask=~(known & _all(all_present(*args), rows)))


def _position(_call: Call, args: list[pa.Array]) -> pa.Array:
    limits, _, row, same, _ = _matches(args)
    hits = np.flatnonzero(same)[::-1]
    place = np.zeros(len(args[0]), np.int64)
    place[row[hits]] = hits - limits[row[hits]] + 1
    return with_nulls(place, pa.int64(), all_present(*args))


def _remove(call: Call, args: list[pa.Array]) -> pa.Array:
    limits, values, row, same, _ = _matches(args)
    valid = all_present(*args)
    at = np.flatnonzero(~same)
    if valid is not None:
        at = at[valid[row[at]]]
    return _kept(call.type, limits, values, at, valid)


def _extreme(sign: int) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(_call: Call, args: list[pa.Array]) -> pa.Array:
        """Evaluate ``array_min`` or ``array_max``: NULL if no element is non-NULL."""
        limits, values = elements(args[0])
        ranks, row = _ranks(values), owners(limits)
        at = np.flatnonzero(ranks)
        order = at[np.lexsort((sign * ranks[at], row[at]))]
        rows, first = np.unique(row[order], return_index=True)
        place, good = np.zeros(len(args[0]), np.int64), np.zeros(len(args[0]), np.bool_)
        place[rows], good[rows] = order[first], True
        return _taken(values, place, good)

    return kernel


def _sort(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``sort_array``; NULL first if ascending, last if descending or with 3 arguments."""
    ascending = call.args[1]
    assert isinstance(ascending, Literal)
    limits, values = elements(args[0])
    ranks = _ranks(values) if ascending.value else -_ranks(values)
    if len(args) > 2:
        ranks[ranks == 0] = len(ranks) + 1
    order = np.lexsort((ranks, owners(limits)))
    return lists(limits, values.take(pa.array(order)), present(args[0]), arrow_type(call.type))


def _distinct(call: Call, args: list[pa.Array]) -> pa.Array:
    limits, values = elements(args[0])
    return _kept(call.type, limits, canonical(values), _firsts(limits, values), present(args[0]))


def _union(call: Call, args: list[pa.Array]) -> pa.Array:
    return _distinct(call, [_concat(call, args)])


def _members(args: list[pa.Array]) -> tuple[Ints, pa.Array, Ints, Bools]:
    """Return offsets and elements of the left arrays, the positions of their distinct elements, in
    order, and the mask of distinct elements that the row's right array contains."""
    (limits, values), (others, more) = map(elements, args)
    codes, _ = _codes(pa.concat_arrays([values, more]))
    keys = np.concatenate([owners(limits), owners(others)]) * (len(codes) + 2) + codes
    inside = np.isin(keys[: len(values)], keys[len(values) :])
    first = _firsts(limits, values)
    return limits, values, first, inside[first]


def _of_members(wanted: bool) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        valid = all_present(*args)
        limits, values, first, inside = _members(args)
        at = first[inside == wanted]
        if valid is not None:
            at = at[valid[owners(limits)[at]]]
        return _kept(call.type, limits, canonical(values), at, valid)

    return kernel


def _overlap(_call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``arrays_overlap``: NULL if both have elements, share none, and one has a NULL."""
    rows = len(args[0])
    limits, values, first, inside = _members(args)
    valid = _all(present(values), len(values))
    common = np.bincount(owners(limits)[first[inside & valid[first]]], minlength=rows) > 0
    some, with_null = np.ones(rows, np.bool_), np.zeros(rows, np.bool_)
    for arg in args:
        bounds, inner = elements(arg)
        some &= np.diff(bounds) > 0
        nulls = ~_all(present(inner), len(inner))
        with_null |= np.bincount(owners(bounds)[nulls], minlength=rows) > 0
    known = common | ~(some & with_null)
    return pa.array(common, mask=~(known & _all(all_present(*args), rows)))


def _compact(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``array_compact``, also as the first step of ``array_join``: leave out NULLs."""
    limits, values = elements(args[0])
    at = np.flatnonzero(_all(present(values), len(values)))
    return _kept(call.args[0].type, limits, values, at, present(args[0]))


def _reverse(call: Call, args: list[pa.Array]) -> pa.Array:
    limits, values = elements(args[0])
    row = owners(limits)
    place = limits[row] + limits[row + 1] - 1 - np.arange(len(row))
    return lists(limits, values.take(pa.array(place)), present(args[0]), arrow_type(call.type))


def _slice(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``slice(array, start, length)``: a part of each array.

    Raises:
        ExpressionError: the start is 0, or the length negative.
    """
    limits, values = elements(args[0])
    valid = _all(all_present(*args), len(args[0]))
    start, length = _ints(args[1]), _ints(args[2])
    if (valid & ((start == 0) | (length < 0))).any():
        raise ExpressionError(
            "bad-slice",
            "slice() begins at place 0, or has a negative length",
            remedy="count from 1, or from -1 at the end",
        )
    begin = np.where(start > 0, limits[:-1] + start - 1, limits[1:] + start)
    good = valid & (begin >= limits[:-1]) & (begin < limits[1:])
    sizes = np.where(good, np.minimum(length, limits[1:] - begin), 0)
    place = _ranges(np.where(good, begin, 0), sizes)
    bounds = limits_of(sizes)
    return lists(bounds, values.take(pa.array(place)), valid, arrow_type(call.type))


def _flatten(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``flatten``: NULL if an inner array is NULL."""
    limits, inner, valid = _without_nulls(args[0])
    bounds, values = elements(inner)
    return lists(bounds[limits], values, valid, arrow_type(call.type))


def _without_nulls(column: pa.Array) -> tuple[Ints, pa.Array, Bools]:
    """Return offsets and elements of arrays without any NULL, and the mask of these arrays."""
    limits, inner = elements(column)
    rows = len(column)
    missing = np.bincount(owners(limits)[~_all(present(inner), len(inner))], minlength=rows) > 0
    valid = _all(present(column), rows) & ~missing
    if not valid.all():
        sizes = np.where(valid, np.diff(limits), 0)
        inner = inner.take(pa.array(_ranges(np.where(valid, limits[:-1], 0), sizes)))
        limits = limits_of(sizes)
    return limits, inner, valid


def _join(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``array_join``: NULLs are left out, or replaced by the third argument."""
    texts = [str(arg.value) for arg in call.args[1:] if isinstance(arg, Literal)]
    if len(texts) == 1:
        return pc.binary_join(_compact(call, args), texts[0])
    limits, values = elements(args[0])
    filled = lists(limits, pc.fill_null(values, texts[1]), present(args[0]), args[0].type)
    return pc.binary_join(filled, texts[0])


#: Operation -> kernel.
COLLECTIONS: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "array": _array,
    "array_compact": _compact,
    "array_concat": _concat,
    "array_contains": _contains,
    "array_distinct": _distinct,
    "array_except": _of_members(False),
    "array_intersect": _of_members(True),
    "array_item": _item,
    "array_join": _join,
    "array_max": _extreme(-1),
    "array_min": _extreme(1),
    "array_position": _position,
    "array_remove": _remove,
    "array_repeat": _repeat,
    "array_reverse": _reverse,
    "array_union": _union,
    "arrays_overlap": _overlap,
    "element_at": _element_at,
    "field": _field,
    "flatten": _flatten,
    "get": _get,
    "map_entries": _part_of_pairs(None),
    "map_from_arrays": _map,
    "map_from_entries": _map_of_entries,
    "map_keys": _part_of_pairs(0),
    "map_value": _map_value,
    "map_values": _part_of_pairs(1),
    "sequence": _sequence,
    "size": _size,
    "slice": _slice,
    "sort_array": _sort,
    "struct": _struct,
}
#: Operations that can fail on a value.
FALLIBLE = frozenset({
    "array_item", "array_repeat", "element_at", "map_from_arrays", "map_from_entries", "sequence",
    "slice", "transform_keys",
})  # fmt: skip
