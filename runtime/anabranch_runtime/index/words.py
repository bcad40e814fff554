"""Reading and writing words and bytes at addresses, for kernels over mapped files.

No access is checked: the caller keeps the memory's owner alive and guarantees the bounds.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _loader(bits: int, kind: Any, align: int | None = None) -> Any:
    """Return a kernel's function (address, index) that reads a word of ``bits`` bits as ``kind``.

    ``align``: greatest known divisor of all addresses; None: the word's size in bytes.
    """

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = ir.Constant(ir.IntType(64), bits // 8)
            place = builder.add(args[0], builder.mul(args[1], width))
            pointer = builder.inttoptr(place, ir.IntType(bits).as_pointer())
            return builder.load(pointer, align=align)

        return kind(types.int64, types.int64), codegen

    return load


def _storer(bits: int, kind: Any) -> Any:
    """Return a function for kernels: (address, index, word) writes the ``index``-th word there."""

    @intrinsic
    def store(typingctx: Any, address: Any, index: Any, word: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = ir.Constant(ir.IntType(64), bits // 8)
            place = builder.add(args[0], builder.mul(args[1], width))
            pointer = builder.inttoptr(place, ir.IntType(bits).as_pointer())
            builder.store(args[2], pointer)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), codegen

    return store


@intrinsic
def copy_bytes(typingctx: Any, source: Any, target: Any, count: Any) -> Any:
    """In a kernel, copy ``count`` bytes from address ``source`` to ``target``, without overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        places = [builder.inttoptr(place, pointer) for place in args[:2]]
        cgutils.raw_memcpy(builder, places[1], places[0], args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


load8 = _loader(8, types.uint8)
load16 = _loader(16, types.uint16)
load32 = _loader(32, types.uint32)
load64 = _loader(64, types.uint64)
#: Reader of 64-bit words at addresses that need not be multiples of 8.
load64_anywhere = _loader(64, types.uint64, 1)
store8 = _storer(8, types.uint8)
store32 = _storer(32, types.uint32)
store64 = _storer(64, types.uint64)
