"""Possible types of SQL expressions in another dialect, inferred from streams and literals.

Translation precedes name resolution, so a name may mean any column or alias of that name in the
statement, and has a set of possible types. An empty set means an unknown type; a translation that
depends on it fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlglot import exp
from sqlglot.expressions import DType

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import FLOATING, INTEGRAL, TypeKind
from anabranch_planner.sql.scope import nearest
from anabranch_planner.sql.unresolved import Node

Kinds = frozenset[TypeKind]
_NONE: Kinds = frozenset()
#: Qualifiers of the fields of a time window, as in window.start.
_WINDOWS = ("window", "session_window")
_TEXT = frozenset({TypeKind.STRING})
_TRUTH = frozenset({TypeKind.BOOLEAN})
_COUNT = frozenset({TypeKind.BIGINT})
_DOUBLE = frozenset({TypeKind.DOUBLE})
_OF_TYPE = {
    DType.TINYINT: TypeKind.TINYINT, DType.SMALLINT: TypeKind.SMALLINT, DType.INT: TypeKind.INT,
    DType.BIGINT: TypeKind.BIGINT, DType.FLOAT: TypeKind.FLOAT, DType.DOUBLE: TypeKind.DOUBLE,
    DType.DECIMAL: TypeKind.DECIMAL, DType.TEXT: TypeKind.STRING, DType.VARCHAR: TypeKind.STRING,
    DType.BOOLEAN: TypeKind.BOOLEAN, DType.DATE: TypeKind.DATE,
    DType.TIMESTAMP: TypeKind.TIMESTAMP, DType.TIMESTAMPTZ: TypeKind.TIMESTAMP,
    DType.TIMESTAMPNTZ: TypeKind.TIMESTAMP_NTZ,
}  # fmt: skip
#: Function of a translated call -> the type of its result.
_OF_CALL = {
    **dict.fromkeys(("date_trunc", "timestampadd", "date_bin"), TypeKind.TIMESTAMP),
    **dict.fromkeys(("date_add", "add_months"), TypeKind.DATE),
    **dict.fromkeys(
        ("dayofweek", "dayofyear", "locate", "timestampdiff", "unix_micros", "weekday",
         "weekofyear"),
        TypeKind.BIGINT,
    ),
    **dict.fromkeys(("listagg", "replace", "split_part"), TypeKind.STRING),
    "contains": TypeKind.BOOLEAN,
}  # fmt: skip
#: Syntax nodes of aggregates over pairs of doubles.
PAIR_NODES = (
    exp.Corr, exp.CovarPop, exp.CovarSamp, exp.RegrAvgx, exp.RegrAvgy, exp.RegrIntercept,
    exp.RegrR2, exp.RegrSlope, exp.RegrSxx, exp.RegrSxy, exp.RegrSyy,
)  # fmt: skip
_TEXTS = (exp.Lower, exp.Upper, exp.Substring, exp.Left, exp.Right, exp.Concat, exp.DPipe, exp.Trim)
_TRUTHS = (exp.Predicate, exp.And, exp.Or, exp.Not, exp.Boolean)
_WHOLE = (
    exp.Length, exp.Extract, exp.Year, exp.Month, exp.Day, exp.Count, exp.CountIf, exp.RowNumber,
    exp.Rank, exp.DenseRank, exp.ApproxDistinct, exp.Grouping, exp.GroupingId, exp.RegrCount,
)  # fmt: skip
_INNER = (
    exp.Paren, exp.Neg, exp.Abs, exp.Min, exp.Max, exp.Nullif, exp.Filter, exp.Window, exp.ArgMax,
    exp.ArgMin, exp.AnyValue, exp.First, exp.Last,
)  # fmt: skip


class Types:
    """Possible types of the expressions of one SQL statement.

    Args:
        tree: the statement.
        streams: the registered streams by name.
        double_literals: whether the literal ``1.5`` is a double; None: unknown.
    """

    def __init__(
        self, tree: Node, streams: Mapping[str, Stream], *, double_literals: bool | None
    ) -> None:
        self._double_literals = double_literals
        self._columns: dict[str, set[TypeKind]] = {}
        #: Names of array columns whose elements are no structs (False), or are structs (True).
        self._arrays: dict[bool, set[str]] = {False: set(), True: set()}
        self._aliases: dict[str, list[Node]] = {}
        self._unknown: set[str] = set()
        mentioned = {table.name.lower() for table in tree.find_all(exp.Table)}
        for name, stream in streams.items():
            if name.lower() in mentioned:
                for column, kind in stream.columns:
                    self._columns.setdefault(column.lower(), set()).add(kind.kind)
                    if kind.kind is TypeKind.ARRAY:
                        spread = kind.element.kind is TypeKind.STRUCT
                        self._arrays[spread].add(column.lower())
        for alias in tree.find_all(exp.Alias):
            self._aliases.setdefault(alias.alias.lower(), []).append(alias.this)
        for named in tree.find_all(exp.TableAlias):
            self._unknown |= {column.name.lower() for column in named.args.get("columns") or ()}
        for unnest in tree.find_all(exp.Unnest):
            offset = unnest.args.get("offset")
            self._unknown |= {offset.name.lower()} if isinstance(offset, exp.Identifier) else set()
        for operation in tree.find_all(exp.SetOperation):
            self._read_operands(operation)
        ctes: set[str] = {str(cte.alias).lower() for cte in tree.find_all(exp.CTE)}
        #: Whether every table in the statement is a registered stream or a query in WITH.
        self._complete = ctes.union(map(str.lower, streams)).issuperset(mentioned)
        self._open: set[str] = set()

    def _read_operands(self, operation: exp.SetOperation) -> None:
        """Add all operands' columns to the possible meanings of the first operand's names."""
        first, second = operation.this.selects, operation.expression.selects
        if any(node.is_star for node in first):
            self._unknown |= self._columns.keys()
        elif any(node.is_star for node in second):
            self._unknown |= {node.alias_or_name.lower() for node in first}
        else:
            for named, node in zip(first, second, strict=False):
                self._aliases.setdefault(named.alias_or_name.lower(), []).append(node.unalias())

    def check_name(self, column: exp.Column) -> None:
        """Reject a column that no stream in the statement has, and that is not an alias.

        Raises:
            QueryError: ``unknown-column``.
        """
        name = column.name.lower()
        named = self._columns.keys() | self._aliases.keys() | self._unknown
        if not self._complete or name in named or column.table.lower() in _WINDOWS:
            return
        if isinstance(column.this, exp.Star):
            return
        raise QueryError(
            "unknown-column",
            f"there is no column {column.name!r} in any of the joined streams",
            remedy=nearest(column.name, named),
        )

    def has_plain_elements(self, node: Node) -> bool:
        """Whether ``node`` is certainly an array whose elements are not structs."""
        name = node.name.lower() if isinstance(node, exp.Column) else ""
        known = self._arrays[False] - self._arrays[True] - self._unknown
        return name in known and name not in self._aliases

    def is_alias(self, column: exp.Column) -> bool:
        """Whether the name of ``column`` is also an alias of an expression."""
        return column.name.lower() in self._aliases

    def of(self, node: Node) -> Kinds:
        """The possible types of ``node``, except the type of NULL; empty if unknown."""
        if isinstance(node, exp.Column):
            return self._of_name(node.name.lower())
        if isinstance(node, exp.Literal):
            return self._of_literal(node)
        if isinstance(node, exp.Cast):
            found = _OF_TYPE.get(node.to.this)
            return _NONE if found is None else frozenset({found})
        if isinstance(node, _INNER):
            return self.of(node.this)
        if isinstance(node, _TEXTS):
            return _TEXT
        if isinstance(node, _TRUTHS):
            return _TRUTH
        if isinstance(node, _WHOLE):
            return _COUNT
        if isinstance(node, PAIR_NODES):
            return _DOUBLE
        if isinstance(node, exp.CurrentTimestamp):
            return frozenset({TypeKind.TIMESTAMP})
        if isinstance(node, exp.Anonymous):
            found = _OF_CALL.get(str(node.this))
            return _NONE if found is None else frozenset({found})
        if isinstance(node, exp.Add | exp.Sub | exp.Mul | exp.Mod):
            return self._of_arithmetic(self.of(node.this), self.of(node.expression))
        if isinstance(node, exp.Div):
            sides = self.of(node.this), self.of(node.expression)
            return _DOUBLE if all(sides) and _DOUBLE in sides else _NONE
        if isinstance(node, exp.Sum):
            summed = self.of(node.this)
            return _COUNT if summed and summed <= INTEGRAL else summed
        if isinstance(node, exp.Avg):
            return _DOUBLE if self.of(node.this) == _DOUBLE else _NONE
        return self._of_any(_branches(node))

    def _of_any(self, nodes: Iterable[Node]) -> Kinds:
        found: set[TypeKind] = set()
        for node in nodes:
            if isinstance(node, exp.Null):
                continue
            kinds = self.of(node)
            if not kinds:
                return _NONE
            found |= kinds
        return frozenset(found)

    def _of_name(self, name: str) -> Kinds:
        if name in self._unknown:
            return _NONE
        found = set(self._columns.get(name, ()))
        if name not in self._open:
            self._open.add(name)
            for node in self._aliases.get(name, ()):
                kinds = self.of(node)
                if not kinds:
                    self._open.remove(name)
                    return _NONE
                found |= kinds
            self._open.remove(name)
        return frozenset(found)

    def _of_literal(self, node: exp.Literal) -> Kinds:
        if node.is_string:
            return _TEXT
        text = str(node.this).lower()
        if "e" in text:
            return _DOUBLE
        if "." not in text:
            return _COUNT
        if self._double_literals is None:
            return _NONE
        return _DOUBLE if self._double_literals else frozenset({TypeKind.DECIMAL})

    @staticmethod
    def _of_arithmetic(left: Kinds, right: Kinds) -> Kinds:
        both = left | right
        if not left or not right or TypeKind.FLOAT in both:
            return _NONE
        if both <= INTEGRAL:
            return _COUNT
        if both <= INTEGRAL | {TypeKind.DECIMAL}:
            return frozenset({TypeKind.DECIMAL})
        return _DOUBLE if both <= INTEGRAL | FLOATING | {TypeKind.DECIMAL} else _NONE


def _branches(node: Node) -> list[Node]:
    """The operands of an SQL CASE, COALESCE or IF that may become the expression's value."""
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        values = [branch.args["true"] for branch in node.args["ifs"]]
        return [*values, *([] if default is None else [default])]
    if isinstance(node, exp.If):
        return [node.args[name] for name in ("true", "false") if node.args.get(name)]
    return []
