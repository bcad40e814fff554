"""Errors of the runtime."""

from __future__ import annotations

from typing import Any

from anabranch_contract.errors import StructuredError


class AnabranchRuntimeError(StructuredError):
    """Something that the data path can't do."""


class ExpressionError(AnabranchRuntimeError):
    """An expression that fails on a row (ANSI mode) or that can't be evaluated as Spark would."""


class KeyTypeError(AnabranchRuntimeError):
    """A column that can't be a key of the required type."""


class ArrowTypeError(AnabranchRuntimeError):
    """A column type that Spark, and so the runtime, has no counterpart for."""


class StateError(AnabranchRuntimeError):
    """A state directory that is damaged, of another version, or not this pipeline's."""


class PipelineError(AnabranchRuntimeError):
    """A pipeline that can't start or go on: no source, no ruleset, a task that failed."""


class SinkError(AnabranchRuntimeError):
    """A sink that can't be written to; the results wait."""


class SourceError(AnabranchRuntimeError):
    """A stream's source that can't be read, at all or for now; other streams are not concerned."""


class EntriesLost(SourceError):
    """Entries of a Redis Stream that are gone; those around them could be read.

    Attributes:
        count: how many.
    """

    def __init__(self, code: str, message: str, *, count: int = 0, **others: Any) -> None:
        super().__init__(code, message, **others)
        self.count = count
