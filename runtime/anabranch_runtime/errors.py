"""Exception classes of the runtime."""

from __future__ import annotations

from typing import Any

from anabranch_contract.errors import StructuredError


class AnabranchRuntimeError(StructuredError):
    """Base class of the runtime's errors: code, message, field and remedy."""


class ExpressionError(AnabranchRuntimeError):
    """An expression that fails on a row (ANSI mode) or that can't be evaluated as Spark would."""


class ColumnOverflow(ExpressionError):
    """A column of more than 2 GiB, which Arrow's offsets can't address; fewer rows may fit."""


class GatherOverflow(ColumnOverflow):
    """A column of more than 2 GiB, to be assembled from stored rows, which Arrow can't address."""


class KeyTypeError(AnabranchRuntimeError):
    """A column whose type can't be converted to the type of a join key."""


class ArrowTypeError(AnabranchRuntimeError):
    """An Arrow column type without a counterpart in Spark's types."""


class StateError(AnabranchRuntimeError):
    """A state directory that is damaged, of another version, or owned by another pipeline."""


class PipelineError(AnabranchRuntimeError):
    """A pipeline that can't start or continue: no source, no ruleset, or a task has failed."""


class SinkError(AnabranchRuntimeError):
    """A sink that can't be written to; its results are kept on disk and delivered later."""


class SinkPaused(SinkError):
    """A sink that says how long to wait before the next attempt at a delivery.

    Attributes:
        pause: seconds to wait; None: unknown.
    """

    def __init__(
        self, code: str, message: str, *, pause: float | None = None, **others: Any
    ) -> None:
        super().__init__(code, message, **others)
        self.pause = pause


class SinkUnderway(SinkPaused):
    """A delivery to a sink that is still in progress; not a failure."""


class SourceError(AnabranchRuntimeError):
    """A stream's source that can't be read, for ever or for now; other streams go on."""


class EntriesLost(SourceError):
    """Entries of a Redis Stream that were deleted before they were read; the rest could be read.

    Attributes:
        count: number of lost entries.
    """

    def __init__(self, code: str, message: str, *, count: int = 0, **others: Any) -> None:
        super().__init__(code, message, **others)
        self.count = count
