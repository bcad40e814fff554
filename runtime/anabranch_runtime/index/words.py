"""Reading and writing words at addresses, for kernels over mapped files.

No access is checked: the caller keeps the memory's owner alive and guarantees the bounds.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def _loader(bits: int, kind: Any) -> Any:
    """A function (address, index) -> the ``index``-th word of ``bits`` bits, as ``kind``."""

    @intrinsic
    def load(typingctx: Any, address: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            width = ir.Constant(ir.IntType(64), bits // 8)
            place = builder.add(args[0], builder.mul(args[1], width))
            pointer = builder.inttoptr(place, ir.IntType(bits).as_pointer())
            return builder.load(pointer)

        return kind(types.int64, types.int64), codegen

    return load


def _storer(bits: int, kind: Any) -> Any:
    """A function (address, index, word) that writes the ``index``-th word at the address."""

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


load8 = _loader(8, types.uint8)
load16 = _loader(16, types.uint16)
load32 = _loader(32, types.uint32)
load64 = _loader(64, types.uint64)
store8 = _storer(8, types.uint8)
store32 = _storer(32, types.uint32)
store64 = _storer(64, types.uint64)
