"""Kinds of SQL joins in a parsed statement."""

from __future__ import annotations

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.unresolved import AsOf


def is_right(join: exp.Join) -> bool:
    """Whether ``join`` is a RIGHT JOIN, which is read as a LEFT JOIN with exchanged sides."""
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    return side == "RIGHT" and kind in ("", "OUTER") and not method


def kind_of(join: exp.Join) -> JoinKind | None:
    """The kind of a supported SQL join; None for any other join."""
    side, kind, method = (str(join.args.get(k) or "").upper() for k in ("side", "kind", "method"))
    if "ASOF" in (kind, method):
        return {"": JoinKind.INNER, "LEFT": JoinKind.LEFT}.get(side)
    if side not in ("", "LEFT", "FULL") or method not in ("", "NATURAL"):
        return None
    if side == "FULL":
        return JoinKind.FULL if kind in ("", "OUTER") and not method else None
    if kind in ("SEMI", "ANTI"):
        return None if method else JoinKind(kind.lower())
    if side == "LEFT":
        return JoinKind.LEFT if kind in ("", "OUTER") and not method else None
    return JoinKind.INNER if kind in ("", "INNER", "CROSS") else None


def as_of(join: exp.Join) -> AsOf | None:
    """The ASOF or FOR SYSTEM_TIME AS OF clause of ``join``; None if it has neither."""
    version = join.this.args.get("version")
    if version is not None:
        return AsOf(time=version.expression)
    kinds = (str(join.args.get(key) or "").upper() for key in ("kind", "method"))
    return AsOf(join.args.get("match_condition")) if "ASOF" in kinds else None
