"""Errors of the runtime: one base class, structured fields, picklable (they cross Spark)."""

from __future__ import annotations


class AnabranchRuntimeError(Exception):
    """Something the data path can't do: what is wrong, where, and what to do about it.

    Attributes:
        code: stable machine-readable kind, e.g. ``"divide-by-zero"``.
        message: what is wrong (one sentence, no trailing newline).
        field: what the complaint is about, e.g. a column, an expression or a file.
        remedy: what the user can do.
    """

    def __init__(self, code: str, message: str, *, field: str = "", remedy: str = "") -> None:
        super().__init__(code, message, field, remedy)
        self.code = code
        self.message = message
        self.field = field
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.code, self.message, self.field, self.remedy))

    def __str__(self) -> str:
        where = f"{self.field}: " if self.field else ""
        hint = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.message}{hint}"


class ExpressionError(AnabranchRuntimeError):
    """An expression that fails on a row (ANSI mode) or that can't be evaluated as Spark would."""


class KeyTypeError(AnabranchRuntimeError):
    """A column that can't be a key of the type asked for."""


class ArrowTypeError(AnabranchRuntimeError):
    """A column type that Spark, and so the runtime, has no counterpart for."""


class StateError(AnabranchRuntimeError):
    """A state directory that is damaged, of another version, or not this pipeline's."""


class PipelineError(AnabranchRuntimeError):
    """A pipeline that can't start or go on: no source, no ruleset, a task that failed."""


def _rebuild(
    kind: type[AnabranchRuntimeError], code: str, message: str, field: str, remedy: str
) -> AnabranchRuntimeError:
    return kind(code, message, field=field, remedy=remedy)
