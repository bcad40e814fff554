"""Compiled treaps: ordered multisets of tuples, one tree per slot (Seidel, Aragon: "Randomized
search trees", 1996).

A node has a tuple's words, the tuple's net weight (negative for a while if deletes come first), and
the total of the positive weights in its subtree. Priorities are hashes of node numbers.

``links`` has per node: left child, right child (:data:`NONE`: no child). ``sizes`` has per node:
weight, total.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.index.kernels import mixed
from anabranch_runtime.tables.kernels import NONE, compare, compare_texts

Ints = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]

#: Maximum depth of a tree; random treaps of 2^31 nodes are less than half as deep.
_DEPTH = 256
LEFT, RIGHT = 0, 1
WEIGHT, TOTAL = 0, 1
#: Ranking functions, as numbers, for :func:`walk`.
ROW_NUMBER, RANK, DENSE_RANK = 0, 1, 2


@njit(cache=True, nogil=True)
def _total(node: int, sizes: Ints) -> int:
    return sizes[node, TOTAL] if node >= 0 else 0


@njit(cache=True, nogil=True)
def _joined(a: int, b: int, links: I32, sizes: Ints) -> int:
    """Join tree ``a`` with ``b``, all of whose tuples are greater; return the root."""
    root, parent, side = NONE, NONE, LEFT
    while a >= 0 and b >= 0:
        if mixed(np.uint64(a)) > mixed(np.uint64(b)):
            sizes[a, TOTAL] += sizes[b, TOTAL]
            node, a, next_side = a, links[a, RIGHT], RIGHT
        else:
            sizes[b, TOTAL] += sizes[a, TOTAL]
            node, b, next_side = b, links[b, LEFT], LEFT
        if parent < 0:
            root = node
        else:
            links[parent, side] = node
        parent, side = node, next_side
    last = a if a >= 0 else b
    if parent < 0:
        return last
    links[parent, side] = last
    return root


@njit(cache=True, nogil=True)
def add(
    roots: I32,
    slots: Ints,
    given: Ints,
    weights: Ints,
    first: int,
    words: Ints,
    links: I32,
    sizes: Ints,
    free: Ints,
    counts: Ints,
    texts: Ints,
    data: U8,
    ends: Ints,
    changes: Ints,
    crossings: bool,
) -> int:
    """Add weighted tuples to the trees of their slots.

    Args:
        roots: root per slot. ``slots``: slot of each tuple ``given``; negative: skipped.
        first: tuple with which to begin.
        free, counts: stack of free nodes; highest node used so far plus 1, free nodes, nodes in
            trees.
        texts, data, ends: see ``kernels``.
        changes: receives the change of each tuple's net weight, a negative one counted as 0;
            length 0: not needed.
        crossings: whether ``changes`` gets 1 if the net weight becomes positive, -1 if it ceases
            to be, else 0.

    Returns:
        Number of processed tuples; fewer than all if no node is free.
    """
    path = np.empty(_DEPTH, np.int64)
    sides = np.empty(_DEPTH, np.int64)
    width = words.shape[1]
    for i in range(first, len(slots)):
        if len(changes) > 0:
            changes[i] = 0
        slot, w = slots[i], weights[i]
        if slot < 0 or w == 0:
            continue
        depth = 0
        node = np.int64(roots[slot])
        order = 1
        while node >= 0:
            order = compare(given, i, words, node, 0, width, texts, data, ends)
            if order == 0:
                break
            path[depth] = node
            sides[depth] = LEFT if order < 0 else RIGHT
            depth += 1
            node = np.int64(links[node, LEFT if order < 0 else RIGHT])
        if node >= 0:
            before = sizes[node, WEIGHT]
            after = before + w
            change = max(after, 0) - max(before, 0)
            sizes[node, WEIGHT] = after
            for k in range(depth):
                sizes[path[k], TOTAL] += change
            if after == 0:
                below = _joined(links[node, LEFT], links[node, RIGHT], links, sizes)
                if depth == 0:
                    roots[slot] = below
                else:
                    links[path[depth - 1], sides[depth - 1]] = below
                free[counts[1]] = node
                counts[1] += 1
                counts[2] -= 1
            else:
                sizes[node, TOTAL] += change
            if len(changes) > 0:
                changes[i] = np.int64(after > 0) - np.int64(before > 0) if crossings else change
            continue
        if counts[1] > 0:
            counts[1] -= 1
            node = free[counts[1]]
        elif counts[0] < len(words):
            node = counts[0]
            counts[0] += 1
        else:
            return i
        counts[2] += 1
        for k in range(width):
            words[node, k] = given[i, k]
        change = max(w, 0)
        sizes[node, WEIGHT] = w
        priority = mixed(np.uint64(node))
        at = 0
        while at < depth and mixed(np.uint64(path[at])) > priority:
            sizes[path[at], TOTAL] += change
            at += 1
        # Split the subtree at this node along the path of the new tuple.
        low, high = NONE, NONE
        for k in range(depth - 1, at - 1, -1):
            here = path[k]
            if sides[k] == RIGHT:
                links[here, RIGHT] = low
                low = here
            else:
                links[here, LEFT] = high
                high = here
            sizes[here, TOTAL] = (
                max(sizes[here, WEIGHT], 0)
                + _total(links[here, LEFT], sizes)
                + _total(links[here, RIGHT], sizes)
            )
        links[node, LEFT] = low
        links[node, RIGHT] = high
        sizes[node, TOTAL] = change + _total(low, sizes) + _total(high, sizes)
        if at == 0:
            roots[slot] = node
        else:
            links[path[at - 1], sides[at - 1]] = node
        if len(changes) > 0:
            changes[i] = np.int64(w > 0) if crossings else change
    return len(slots)


@njit(cache=True, nogil=True)
def clear(roots: I32, slots: Ints, links: I32, free: Ints, counts: Ints) -> None:
    """Remove the trees of ``slots``, and free their nodes."""
    stack = np.empty(_DEPTH, np.int64)
    for i in range(len(slots)):
        if roots[slots[i]] < 0:
            continue
        stack[0] = roots[slots[i]]
        roots[slots[i]] = NONE
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            for side in (LEFT, RIGHT):
                if links[node, side] >= 0:
                    stack[depth] = links[node, side]
                    depth += 1
            free[counts[1]] = node
            counts[1] += 1
            counts[2] -= 1


@njit(cache=True, nogil=True)
def totals(roots: I32, slots: Ints, sizes: Ints, out: Ints) -> None:
    """Write the sum of the positive net weights in each slot's tree to ``out``."""
    for i in range(len(slots)):
        out[i] = _total(roots[slots[i]], sizes)


@njit(cache=True, nogil=True)
def at_ranks(roots: I32, slots: Ints, ranks: Ints, links: I32, sizes: Ints, out: Ints) -> None:
    """Write the node at position ``ranks[i]`` (from 0, by weight; negative: from the end, -1 is the
    last) of each slot's tree to ``out``; :data:`NONE` if there is none."""
    for i in range(len(slots)):
        node = np.int64(roots[slots[i]])
        rank = ranks[i]
        if rank < 0:
            rank += _total(node, sizes)
        out[i] = NONE
        if rank < 0 or rank >= _total(node, sizes):
            continue
        while True:
            low = _total(links[node, LEFT], sizes)
            own = max(sizes[node, WEIGHT], 0)
            if rank < low:
                node = np.int64(links[node, LEFT])
            elif rank < low + own:
                out[i] = node
                break
            else:
                rank -= low + own
                node = np.int64(links[node, RIGHT])


@njit(cache=True, nogil=True)
def ranks(
    roots: I32,
    slots: Ints,
    values: Ints,
    inclusive: bool,
    links: I32,
    sizes: Ints,
    words: Ints,
    out: Ints,
) -> None:
    """Write to ``out``, per slot's tree, the number of tuples (sum of positive net weights) whose
    first word is less than ``values[i]`` or, if ``inclusive``, equal to it."""
    for i in range(len(slots)):
        node = np.int64(roots[slots[i]])
        out[i] = 0
        while node >= 0:
            word = words[node, 0]
            if word < values[i] or (inclusive and word == values[i]):
                out[i] += _total(links[node, LEFT], sizes) + max(sizes[node, WEIGHT], 0)
                node = np.int64(links[node, RIGHT])
            else:
                node = np.int64(links[node, LEFT])


@njit(cache=True, nogil=True)
def walk(
    roots: I32,
    slots: Ints,
    links: I32,
    sizes: Ints,
    words: Ints,
    sorts: int,
    texts: Ints,
    data: U8,
    ends: Ints,
    most: int,
    ranking: int,
    everything: bool,
) -> tuple[Ints, Ints, Ints, Ints]:
    """List in order the nodes of each slot's tree whose places are at most ``most``.

    Args:
        sorts: number of first words that are sort keys; tuples equal in them have one rank.
        most: greatest place; negative: no limit.
        ranking: :data:`ROW_NUMBER`, :data:`RANK` or :data:`DENSE_RANK`.
        everything: whether to list nodes with weights below 1, too.

    Returns:
        Per listed node its number, the place of the first of its equal tuples, and the number of
            these tuples that are listed; then the end of each slot's nodes.
    """
    room = 64
    nodes, places, times = (
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    limits = np.empty(len(slots), np.int64)
    stack = np.empty(_DEPTH, np.int64)
    used = 0
    for i in range(len(slots)):
        node = np.int64(roots[slots[i]])
        depth = 0
        position = np.int64(1)
        place = np.int64(0)
        last = np.int64(NONE)
        while node >= 0 or depth > 0:
            while node >= 0:
                stack[depth] = node
                depth += 1
                node = np.int64(links[node, LEFT])
            depth -= 1
            node = stack[depth]
            weight = sizes[node, WEIGHT]
            if weight > 0 or everything:
                if ranking == ROW_NUMBER:
                    place = position
                elif (
                    last < 0 or compare(words, last, words, node, 0, sorts, texts, data, ends) != 0
                ):
                    place = position if ranking == RANK else place + 1
                if most >= 0 and place > most:
                    break
                last = node
                shown = weight
                if most >= 0 and ranking == ROW_NUMBER:
                    shown = min(weight, most - position + 1)
                if used == room:
                    room *= 2
                    nodes, places, times = (
                        _wider(nodes, room),
                        _wider(places, room),
                        _wider(times, room),
                    )
                nodes[used], places[used], times[used] = node, place, shown
                used += 1
                position += max(weight, 0)
            node = np.int64(links[node, RIGHT])
        limits[i] = used
    return nodes[:used].copy(), places[:used].copy(), times[:used].copy(), limits


@njit(cache=True, nogil=True)
def between(
    roots: I32,
    slots: Ints,
    lows: Ints,
    highs: Ints,
    low_word: int,
    high_word: int,
    links: I32,
    words: Ints,
) -> tuple[Ints, Ints]:
    """List the nodes of each slot's tree whose word ``low_word`` is at least ``lows[i]`` and whose
    word ``high_word`` is at most ``highs[i]``, in order; both words ascend in the tree.

    Returns:
        Nodes, and the end of the nodes of each of ``slots``.
    """
    room, used = 64, 0
    nodes = np.empty(room, np.int64)
    limits = np.empty(len(slots), np.int64)
    stack = np.empty(_DEPTH, np.int64)
    for i in range(len(slots)):
        node = np.int64(roots[slots[i]])
        depth = 0
        while node >= 0 or depth > 0:
            while node >= 0:
                if words[node, low_word] < lows[i]:
                    node = np.int64(links[node, RIGHT])
                else:
                    stack[depth] = node
                    depth += 1
                    node = np.int64(links[node, LEFT])
            if depth == 0:
                break
            depth -= 1
            node = stack[depth]
            if words[node, high_word] > highs[i]:
                break
            if used == room:
                room *= 2
                nodes = _wider(nodes, room)
            nodes[used] = node
            used += 1
            node = np.int64(links[node, RIGHT])
        limits[i] = used
    return nodes[:used].copy(), limits


@njit(cache=True, nogil=True)
def _wider(values: Ints, room: int) -> Ints:
    wider = np.empty(room, np.int64)
    wider[: len(values)] = values
    return wider


@njit(cache=True, nogil=True)
def cut(
    roots: I32, slots: Ints, most: Ints, links: I32, sizes: Ints, free: Ints, counts: Ints
) -> None:
    """Remove the last tuples of each slot's tree until their weights add up to ``most[i]``."""
    path = np.empty(_DEPTH, np.int64)
    for i in range(len(slots)):
        slot = slots[i]
        while _total(roots[slot], sizes) > most[i]:
            over = _total(roots[slot], sizes) - most[i]
            depth = 0
            node = np.int64(roots[slot])
            while links[node, RIGHT] >= 0:
                path[depth] = node
                depth += 1
                node = np.int64(links[node, RIGHT])
            weight = sizes[node, WEIGHT]
            gone = min(max(weight, 0), over)
            for k in range(depth):
                sizes[path[k], TOTAL] -= gone
            if weight > gone:
                sizes[node, WEIGHT] -= gone
                sizes[node, TOTAL] -= gone
                continue
            if depth == 0:
                roots[slot] = links[node, LEFT]
            else:
                links[path[depth - 1], RIGHT] = links[node, LEFT]
            free[counts[1]] = node
            counts[1] += 1
            counts[2] -= 1


@njit(cache=True, nogil=True)
def among_first(
    roots: I32,
    slots: Ints,
    index: Ints,
    given: Ints,
    weights: Ints,
    most: int,
    words: Ints,
    links: I32,
    sizes: Ints,
    texts: Ints,
    data: U8,
    ends: Ints,
    out: NDArray[np.bool_],
) -> None:
    """Mark the tuples that may be among the first ``most`` of their slot, since at most ``most`` -
    1 others, in the slot's tree or in ``given``, are less by the words of ``given``.

    Args:
        slots: distinct slots. ``index``: position of each tuple's slot in ``slots``.
        given: tuples, or only their first words. ``weights``: of these; those below 1 count as 1.
    """
    end = given.shape[1]
    starts = np.zeros(len(slots) + 1, np.int64)
    for i in range(len(index)):
        starts[index[i] + 1] += 1
    largest = np.int64(0)
    for n in range(len(slots)):
        largest = max(largest, starts[n + 1])
        starts[n + 1] += starts[n]
    order = np.empty(len(index), np.int64)
    for i in range(len(index)):
        order[starts[index[i]]] = i
        starts[index[i]] += 1
    heap = np.empty(min(most, largest), np.int64)
    first = np.int64(0)
    for n in range(len(slots)):
        last = np.int64(roots[slots[n]])
        if last >= 0 and sizes[last, TOTAL] >= most:
            while links[last, RIGHT] >= 0:
                last = np.int64(links[last, RIGHT])
        else:
            last = np.int64(NONE)
        # Heap of the ``most`` least tuples so far, with the greatest one first.
        size = np.int64(0)
        for k in range(first, starts[n]):
            i = order[k]
            out[i] = last < 0 or compare(given, i, words, last, 0, end, texts, data, ends) <= 0
            if not out[i] or weights[i] < 1 or starts[n] - first <= most:
                continue
            if size < most:
                at = size
                size += 1
                while at > 0:
                    above = (at - 1) >> 1
                    if compare(given, i, given, heap[above], 0, end, texts, data, ends) <= 0:
                        break
                    heap[at] = heap[above]
                    at = above
                heap[at] = i
            elif compare(given, i, given, heap[0], 0, end, texts, data, ends) < 0:
                at = np.int64(0)
                while True:
                    below = 2 * at + 1
                    if below >= size:
                        break
                    if below + 1 < size and (
                        compare(
                            given, heap[below + 1], given, heap[below], 0, end, texts, data, ends
                        )
                        > 0
                    ):
                        below += 1
                    if compare(given, heap[below], given, i, 0, end, texts, data, ends) <= 0:
                        break
                    heap[at] = heap[below]
                    at = below
                heap[at] = i
        if size == most:
            for k in range(first, starts[n]):
                i = order[k]
                if out[i] and weights[i] > 0:
                    out[i] = compare(given, i, given, heap[0], 0, end, texts, data, ends) <= 0
        first = starts[n]


@njit(cache=True, nogil=True)
def least(
    state: Ints,
    at: int,
    index: Ints,
    given: Ints,
    valid: NDArray[np.bool_],
    texts: Ints,
    data: U8,
    ends: Ints,
) -> None:
    """Keep the least tuple of each state row (group) in the words after ``at``; word ``at``: 1."""
    width = given.shape[1]
    for i in range(len(index)):
        if len(valid) > 0 and not valid[i]:
            continue
        r = index[i]
        better = state[r, at] == 0
        if not better:
            for k in range(width):
                a, b = given[i, k], state[r, at + 1 + k]
                if a == b:
                    continue
                if texts[k] == 0:
                    better = a < b
                    break
                order = compare_texts(a, b, data, ends) * texts[k]
                if order != 0:
                    better = order < 0
                    break
        if better:
            state[r, at] = 1
            for k in range(width):
                state[r, at + 1 + k] = given[i, k]


@njit(cache=True, nogil=True)
def listed(
    nodes: Ints,
    times: Ints,
    limits: Ints,
    at: int,
    words: Ints,
    separator: U8,
    data: U8,
    ends: Ints,
    once: bool,
) -> tuple[Ints, U8]:
    """Concatenate the texts (word ``at``) of each slot's nodes, as listed by :func:`walk`.

    Returns:
        Offsets of the concatenated texts, and their bytes.
    """
    offsets = np.zeros(len(limits) + 1, np.int64)
    start = 0
    for i in range(len(limits)):
        size = np.int64(0)
        for k in range(start, limits[i]):
            count = 1 if once else times[k]
            number = words[nodes[k], at]
            size += count * (ends[number + 1] - ends[number] + len(separator))
        offsets[i + 1] = offsets[i] + max(size - len(separator), 0)
        start = limits[i]
    out = np.empty(offsets[len(limits)], np.uint8)
    start = 0
    for i in range(len(limits)):
        to = offsets[i]
        begun = False
        for k in range(start, limits[i]):
            number = words[nodes[k], at]
            for _ in range(1 if once else times[k]):
                if begun:
                    for b in range(len(separator)):
                        out[to] = separator[b]
                        to += 1
                begun = True
                for b in range(ends[number], ends[number + 1]):
                    out[to] = data[b]
                    to += 1
        start = limits[i]
    return offsets, out
