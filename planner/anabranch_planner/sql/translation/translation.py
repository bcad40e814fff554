"""Translation of a parsed statement in another SQL dialect to an equivalent one in Spark's.

Node types in :data:`_READ` are supported, with the arguments listed in it; all others are rejected
by name. An expression whose meaning depends on the dialect (:mod:`.meanings`) is kept, rewritten
for Spark, or rejected with a remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from sqlglot import TokenType, exp
from sqlglot.expressions import DType

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.types import FLOATING, INTEGRAL, NUMERIC, TIMESTAMPS, TypeKind
from anabranch_planner.sql.arguments import CONSUMED, refuse_others
from anabranch_planner.sql.clauses.char_patterns import as_sparks, in_sparks_words
from anabranch_planner.sql.clauses.generators import check_flattened
from anabranch_planner.sql.functions import check_zone
from anabranch_planner.sql.places import SourceText
from anabranch_planner.sql.translation import functions, times
from anabranch_planner.sql.translation.aggregates import READ, AggregateRules
from anabranch_planner.sql.translation.functions import FunctionRules, in_sparks_calls
from anabranch_planner.sql.translation.kinds import Types
from anabranch_planner.sql.translation.meanings import MEANINGS, UNKNOWN, Division, Meanings
from anabranch_planner.sql.translation.rules import SPARKS, not_translated
from anabranch_planner.sql.translation.times import TimeRules, age_refusal, in_other_calls
from anabranch_planner.sql.unresolved import Node, as_written, at, conjunction

_UNARY = frozenset({"this"})
_BINARY = frozenset({"this", "expression"})
_EXACT = INTEGRAL | {TypeKind.DECIMAL}
_DOUBLE = frozenset({TypeKind.DOUBLE})
#: Nodes whose meaning differs between dialects and that have no entry in ``meanings`` yet.
_UNTRANSLATED = frozenset({
    exp.RegexpLike, exp.IntDiv, exp.TryCast, exp.Bracket, exp.BitwiseAnd, exp.BitwiseOr,
    exp.BitwiseXor, exp.BitwiseNot,
})  # fmt: skip
#: Node type -> the arguments of it that are translated.
_READ: dict[type[Node], frozenset[str]] = {
    **{kind: read for kind, read in CONSUMED.items() if kind not in _UNTRANSLATED},
    **READ,
    **dict.fromkeys(
        (
            exp.Lower, exp.Upper, exp.Length, exp.Abs, exp.Year, exp.Month, exp.Day, exp.Sum,
            exp.Avg, exp.Min, exp.Max, exp.Stddev, exp.StddevSamp, exp.StddevPop, exp.Variance,
            exp.VariancePop, exp.LogicalAnd, exp.LogicalOr, exp.CountIf, exp.DateStrToDate,
        ),
        _UNARY,
    ),
    **dict.fromkeys(
        (exp.Left, exp.Right, exp.Nullif, exp.StartsWith, exp.EndsWith, exp.NullSafeNEQ), _BINARY
    ),
    exp.Exists: _UNARY,
    exp.Unnest: frozenset({"expressions", "alias", "offset"}),
    exp.Explode: _UNARY,
    exp.Subquery: frozenset({"this", "alias", "joins"}),
    exp.Group: frozenset({"expressions", "all", "rollup", "cube", "grouping_sets"}),
    exp.Order: frozenset({"this", "expressions"}),
    exp.Table: frozenset({"this", "alias", "joins", "version"}),
    exp.Column: frozenset({"this", "table"}),
    exp.Between: frozenset({"this", "low", "high"}),
    exp.In: frozenset({"this", "expressions", "query"}),
    exp.Cast: frozenset({"this", "to"}),
    exp.Trim: frozenset({"this", "position"}),
    exp.DataType: frozenset({"this", "expressions", "nested", "nullable"}),
    exp.Fetch: frozenset({"direction", "count", "limit_options"}),
    exp.LimitOptions: frozenset({"rows"}),
    exp.Coalesce: frozenset({"this", "expressions", "is_nvl"}),
    exp.Substring: frozenset({"this", "start", "length", "zero_start"}),
    exp.Left: _BINARY | {"negative_length_returns_empty"},
    exp.Right: _BINARY | {"negative_length_returns_empty"},
    exp.Concat: frozenset({"expressions", "safe", "coalesce"}),
    exp.Count: frozenset({"this", "expressions", "big_int"}),
    exp.Mod: _BINARY,
    exp.Any: _UNARY,
    exp.All: _UNARY,
    exp.Overlaps: _BINARY,
    exp.AtTimeZone: frozenset({"this", "zone"}),
    exp.TimeToStr: frozenset({"this", "format"}),
    **functions.READ,
    **times.READ,
}  # fmt: skip
_TYPES = frozenset({
    DType.BOOLEAN, DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT, DType.FLOAT,
    DType.DOUBLE, DType.DECIMAL, DType.TEXT, DType.VARCHAR, DType.DATE, DType.TIMESTAMP,
    DType.TIMESTAMPTZ, DType.TIMESTAMPNTZ,
})  # fmt: skip
_INTEGERS = frozenset({DType.TINYINT, DType.SMALLINT, DType.INT, DType.BIGINT})
_TIMES = frozenset({DType.TIMESTAMP, DType.TIMESTAMPTZ, DType.TIMESTAMPNTZ})
_JOINS = frozenset({"", "INNER", "CROSS", "OUTER", "SEMI", "ANTI"})
#: Dialects with ASOF joins.
_ASOF = frozenset({"clickhouse", "duckdb", "snowflake"})
#: Dialects whose UNNEST in FROM returns a row per element; and the dialects among them in which an
#: element's fields become columns.
_UNNEST = frozenset({"bigquery", "duckdb", "presto", "trino"})
_SPREADING = frozenset({"presto", "trino"})
#: Dialects where AT TIME ZONE converts a timestamp with time zone to a local time, and vice versa.
_ZONED = frozenset({"duckdb", "postgres"})
#: Functions that only anabranch has, whose calls stay as written.
_OWN = frozenset({"window", "session_window", "grouping_id"})
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.In)


def translate(tree: Node, dialect: str, streams: Mapping[str, Stream], source: SourceText) -> Node:
    """Translate ``tree``, a query in ``dialect``, to Spark's dialect.

    Args:
        streams: the registered streams, for the types of columns.
        source: the text of the statement, for messages and patterns.

    Raises:
        QueryError: ``unsupported-sql``: a construct has no equivalent in Spark, or its translation
            depends on unknown types.
    """
    translator = _Translator(dialect, MEANINGS.get(dialect, UNKNOWN), tree, streams, source)
    with at(tree):
        check_flattened(tree, dialect)
    for node in list(tree.walk()):
        with at(tree), at(node):
            translator.check(node)
            if isinstance(node, exp.Column):
                translator.types.check_name(node)
    made = tree
    # Translate from the leaves up, so that a rule sees its node before the nodes around it change.
    for node in reversed(list(tree.walk())):
        with at(tree), at(node):
            found = translator.translated(node)
        if found is not node:
            if node is made:
                made = found
            else:
                node.replace(found)
    return made


class _Translator:
    """Translation rules from one SQL dialect to Spark's by node type, for one statement."""

    def __init__(
        self,
        dialect: str,
        meanings: Meanings,
        tree: Node,
        streams: Mapping[str, Stream],
        source: SourceText,
    ) -> None:
        self.dialect, self.meanings, self._source = dialect, meanings, source
        self.types = Types(tree, streams, double_literals=meanings.double_literals)
        self._rules: dict[type[Node], Callable[[Node], Node]] = {
            exp.Literal: self._literal,
            exp.Cast: self._cast,
            exp.Div: self._division,
            exp.Mod: self._modulo,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.Concat: self._concat,
            exp.DPipe: self._pipe,
            exp.Left: self._end,
            exp.Right: self._end,
            exp.Substring: self._substring,
            exp.Length: self._length,
            exp.Lower: self._case,
            exp.Upper: self._case,
            exp.Trim: self._trim,
            exp.Avg: self._mean,
            exp.Stddev: self._spread,
            exp.StddevSamp: self._spread,
            exp.StddevPop: self._spread,
            exp.Variance: self._spread,
            exp.VariancePop: self._spread,
            exp.EQ: self._rows,
            exp.NEQ: self._rows,
            exp.In: self._rows,
            exp.NullSafeEQ: self._rows,
            exp.NullSafeNEQ: self._distinct_from,
            exp.Add: self._sum,
            exp.Sub: self._sum,
            exp.Join: self._join,
            exp.Unnest: self._unnest,
            exp.Explode: self._listed_unnest,
            exp.Anonymous: self._function,
            exp.Except: self._comparison,
            exp.Intersect: self._comparison,
            exp.DateStrToDate: self._date,
            exp.AtTimeZone: self._zoned,
            exp.Overlaps: self._overlaps,
            exp.TimeToStr: self._formatted,
            exp.Any: self._rows_of_query,
            exp.All: self._rows_of_query,
            exp.StartsWith: self._search,
            exp.EndsWith: self._search,
            **AggregateRules(dialect, meanings, self.types).by_type,
            **FunctionRules(dialect, meanings, self.types).by_type,
            **TimeRules(dialect, self.types).by_type,
        }

    def check(self, node: Node) -> None:
        """Reject a node if its type or one of its arguments has no translation."""
        read = _READ.get(type(node))
        if read is None or (isinstance(node, exp.TimeToStr) and self.dialect != "postgres"):
            remedy = in_sparks_words(node) or in_other_calls(node) or in_sparks_calls(node)
            named = self._source.named(node, self.dialect)
            raise self._refused(named, remedy or SPARKS).moved(position=self._source.place(node))
        refuse_others(node, read)

    def translated(self, node: Node) -> Node:
        """``node`` translated to Spark's dialect."""
        rule = self._rules.get(type(node))
        return node if rule is None else rule(node)

    def _refused(self, what: str, remedy: str) -> QueryError:
        return not_translated(what, self.dialect, remedy)

    def _kinds(self, node: Node) -> frozenset[TypeKind]:
        return self.types.of(node)

    def _are(self, node: Node, wanted: frozenset[TypeKind]) -> bool:
        """Whether all possible types of the expression ``node`` are in ``wanted``."""
        kinds = self._kinds(node)
        return bool(kinds) and kinds <= wanted

    # --- constants and casts -------------------------------------------------------------------

    def _literal(self, node: Node) -> Node:
        text = str(node.this)
        if node.args.get("is_string"):
            if not text and self.meanings.empty_is_null:
                raise self._refused("the empty text, which is NULL", "write NULL, or IS NULL")
            return node
        if "." not in text or "e" in text.lower() or isinstance(node.parent, exp.DataTypeParam):
            return node
        if self.meanings.double_literals is None:
            raise self._refused(f"the number {text}", f"write CAST({text} AS DOUBLE)")
        return exp.Literal.number(f"{text}e0") if self.meanings.double_literals else node

    def _cast(self, node: Node) -> Node:
        target, operand = node.args["to"], node.this
        wanted = self.meanings.types.get(target.this, target.this)
        parameters = target.expressions
        what = f"CAST to {target.sql(self.dialect)}"
        if wanted not in _TYPES or target.args.get("nested"):
            raise self._refused(what, "cast to BOOLEAN, BIGINT, DOUBLE, DECIMAL, DATE or TIMESTAMP")
        if wanted is DType.DECIMAL:
            self._to_decimal(node, what)
            if not parameters:
                if self.meanings.decimal is None:
                    raise self._refused(what, "give its digits: DECIMAL(38, 6)")
                parameters = [
                    exp.DataTypeParam(this=exp.Literal.number(n)) for n in self.meanings.decimal
                ]
        elif parameters and not (wanted in _TIMES and len(parameters) == 1):
            raise self._refused(f"{what} with a length", "cast to TEXT without a length")
        elif wanted in _INTEGERS:
            self._to_integer(operand, what)
        elif wanted in (DType.TEXT, DType.VARCHAR):
            self._to_text(operand, what)
            wanted = DType.TEXT
        elif wanted is DType.BOOLEAN:
            self._require(operand, INTEGRAL | {TypeKind.BOOLEAN}, what)
        elif wanted in (DType.FLOAT, DType.DOUBLE):
            self._require(operand, NUMERIC, what)
            if wanted is DType.FLOAT and self.dialect not in ("duckdb", "databricks", "clickhouse"):
                raise self._refused(f"{what}, which has another width,", "cast to DOUBLE")
        elif not _is_moment(operand):
            self._require(operand, TIMESTAMPS | {TypeKind.DATE}, what)
        kept = parameters if wanted is DType.DECIMAL else []
        node.set("to", exp.DataType(this=wanted, expressions=kept, nested=False))
        return node

    def _date(self, node: Node) -> Node:
        if not _is_moment(node.this):
            raise self._refused("a date that is not a literal", "write DATE '2024-01-31'")
        return _cast(node.this.copy(), DType.DATE)

    def _require(self, operand: Node, kinds: frozenset[TypeKind], what: str) -> None:
        if not self._are(operand, kinds) and not isinstance(operand, exp.Null):
            listed = " or ".join(sorted(kinds - INTEGRAL))
            if kinds >= INTEGRAL:
                listed = "a number" if kinds >= NUMERIC else f"an integer or {listed}"
            raise self._refused(f"{what} of an expression that may not be {listed}", SPARKS)

    def _to_integer(self, operand: Node, what: str) -> None:
        if isinstance(operand, exp.Literal) and operand.is_string and str(operand.this).isdecimal():
            return
        kinds = self._kinds(operand)
        allowed = INTEGRAL | {TypeKind.BOOLEAN}
        if self.meanings.truncates:
            allowed |= FLOATING | {TypeKind.DECIMAL}
        if self.meanings.strict_text:
            allowed |= {TypeKind.STRING}
        if kinds and kinds <= allowed:
            return
        if kinds & (FLOATING | {TypeKind.DECIMAL}) or not kinds:
            raise self._refused(
                f"{what} of a value that may have a fraction",
                f"{SPARKS}, where CAST cuts fractions off and does not round them",
            )
        raise self._refused(f"{what} of a text", "cast it before the rows enter the stream")

    def _to_decimal(self, cast: Node, what: str) -> None:
        operand = cast.this
        if not self.meanings.decimal_rounds:
            raise self._refused(what, f"{SPARKS}, where CAST rounds halves away from zero")
        if self._kinds(operand) & FLOATING:
            raise self._refused(
                f"{what} of a double, whose digits are rounded otherwise in Spark,",
                f"{SPARKS}: {as_written(cast)}",
            )
        self._require(operand, _EXACT, what)

    def _to_text(self, operand: Node, what: str) -> None:
        allowed = INTEGRAL | {TypeKind.STRING}
        if self.meanings.dates_as_text:
            allowed |= {TypeKind.DATE}
        self._require(operand, allowed, what)

    # --- arithmetic ----------------------------------------------------------------------------

    def _division(self, node: Node) -> Node:
        sides, meaning = [node.this, node.expression], self.meanings.division
        if meaning is Division.SPARK:
            return node
        if any(TypeKind.FLOAT in self._kinds(side) for side in sides):
            raise self._refused("a division of FLOAT", "cast one side, e.g. CAST(x AS DOUBLE)")
        if meaning is Division.DOUBLE:
            for name, side in (("this", node.this), ("expression", node.expression)):
                if self._are(side, _EXACT) or not self._kinds(side):
                    node.set(name, _cast(side.copy(), DType.DOUBLE))
            return node
        if any(self._are(side, _DOUBLE) for side in sides):
            if node.args.get("safe"):
                # In this dialect, x / 0 is NULL instead of an error.
                zero = exp.Literal.number(0)
                node.set("expression", exp.Nullif(this=node.expression.copy(), expression=zero))
            return node
        raise self._refused(
            "a division of integers or decimals, whose number of digits differs in Spark,",
            f"cast one side: {as_written(_cast(node.this.copy(), DType.DOUBLE))} / "
            f"{as_written(node.expression)}",
        )

    def _modulo(self, node: Node) -> Node:
        if self.meanings.integer_modulo and not all(
            self._are(side, INTEGRAL) for side in (node.this, node.expression)
        ):
            raise self._refused("% of values that may not be integers", "use it with integers only")
        return node

    def _sum(self, node: Node) -> Node:
        sides = [node.this, node.expression]
        intervals = [side for side in sides if side.find(exp.Interval)]
        if not intervals and isinstance(node, exp.Sub):
            self._require_intervals(node)
        if not intervals or self.meanings.date_plus_days is True:
            return node
        moved = [
            _moved(side) for side in sides if side not in intervals or _moved(side) is not side
        ]
        if moved and self._are(moved[0], TIMESTAMPS):
            return node
        if _compared(node):
            # In comparisons, a date equals the timestamp of its midnight in all dialects.
            return node
        raise self._refused(
            "a date that is moved by an interval, outside of a comparison,",
            f"{SPARKS}, where it is a date again",
        )

    def _require_intervals(self, node: Node) -> None:
        """Reject a difference of dates or times whose value is a number in the dialect."""
        kinds = [self._kinds(side) for side in (node.this, node.expression)]
        if not all(kinds) or any(kind - TIMESTAMPS - {TypeKind.DATE} for kind in kinds):
            return
        compared = _compared(node)
        if compared is not None and compared.find(exp.Interval):
            return
        if not self.meanings.times_apart or any(kind - TIMESTAMPS for kind in kinds):
            raise self._refused(
                "a difference of dates or timestamps, which is no interval of this type,",
                f"{SPARKS}, where it is an interval",
            )

    def _comparison(self, node: Node) -> Node:
        if self.dialect == "clickhouse" and not node.args.get("distinct"):
            name = type(node).__name__.upper()
            raise self._refused(
                f"{name}, which keeps equal rows of its left side,", f"write {name} DISTINCT"
            )
        return node

    # --- times ---------------------------------------------------------------------------------

    def _zoned(self, node: Node) -> Node:
        zone, value = node.args["zone"], node.this
        if self.dialect not in _ZONED:
            remedy = "write it in Spark's dialect, where it is PostgreSQL's"
            raise self._refused("AT TIME ZONE", remedy)
        # Abbreviations and offsets vary in meaning: +02:00 is behind UTC in PostgreSQL.
        if not isinstance(zone, exp.Literal) or ("/" not in zone.name and zone.name != "UTC"):
            raise self._refused("this time zone", "write a region, such as 'Europe/Berlin'")
        with at(zone):
            check_zone(zone.name)
        while isinstance(value, exp.Paren):
            value = value.this
        if isinstance(value, exp.Cast) and value.to.this is DType.TIMESTAMP:
            value.set("to", exp.DataType(this=DType.TIMESTAMPNTZ))
        elif not self._is_certain(value):
            raise self._refused(
                "AT TIME ZONE of an expression, which may be a moment or a local time,",
                "write CAST(x AS TIMESTAMPTZ) for a moment",
            )
        return exp.Anonymous(this="timezone", expressions=[zone.copy(), value.copy()])

    def _is_certain(self, value: Node) -> bool:
        """Whether it is certain if ``value`` has a time zone in the dialect, or has none."""
        if isinstance(value, exp.Column):
            return self._are(value, TIMESTAMPS) and not self.types.is_alias(value)
        if isinstance(value, exp.Cast):
            return value.to.this in _TIMES
        return isinstance(value, exp.Anonymous) and value.name == "timezone"

    def _formatted(self, node: Node) -> Node:
        """Translate PostgreSQL's ``to_char(moment, pattern)`` to ``date_format``."""
        call = self._source.call(node)
        if not self._are(node.this, TIMESTAMPS | {TypeKind.DATE}):
            raise self._refused(
                "to_char() of an expression that may not be a date or timestamp", SPARKS
            )
        pattern, comma = call[-2], call[-3]
        if pattern.token_type is not TokenType.STRING or comma.token_type is not TokenType.COMMA:
            raise self._refused("to_char() with a pattern that is not a literal", SPARKS)
        try:
            made = as_sparks(pattern.text)
        except ValueError as cause:
            raise self._refused(
                f"{cause} in to_char()",
                f"{SPARKS}: date_format({as_written(node.this)}, 'yyyy-MM-dd HH:mm:ss')",
            ) from cause
        return exp.Anonymous(
            this="date_format", expressions=[node.this.copy(), exp.Literal.string(made)]
        )

    def _overlaps(self, node: Node) -> Node:
        if self.dialect != "postgres":
            raise self._refused("OVERLAPS", "write a < d AND c < b")
        return node

    def _rows_of_query(self, node: Node) -> Node:
        if isinstance(node.this, exp.Query):
            return node
        name = type(node).__name__.upper()
        raise self._refused(f"{name} of an array", f"write {name} (SELECT ...), or {SPARKS}")

    # --- texts ---------------------------------------------------------------------------------

    def _like(self, node: Node) -> Node:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal):
            return node
        text, like = str(pattern.this), self.meanings.like
        if like.classes and "[" in text:
            raise self._refused("[ in LIKE, which begins a class of characters,", "use ESCAPE")
        if like.ignores_case and isinstance(node, exp.Like) and text.lower() != text.upper():
            raise self._refused("LIKE, which ignores the case of letters,", SPARKS)
        if "\\" in text and not isinstance(node.parent, exp.Escape):
            if like.escape is None:
                raise self._refused("a backslash in LIKE", "give an ESCAPE")
            if not like.escape:
                node.set("expression", exp.Literal.string(text.replace("\\", "\\\\")))
        return node

    def _concat(self, node: Node) -> Node:
        skips = self.meanings.concat_skips_nulls
        if skips is None:
            raise self._refused("concat()", "write ||, or coalesce(x, '') around each argument")
        args = [arg.copy() for arg in node.expressions]
        for arg in args:
            self._require(arg, frozenset({TypeKind.STRING}), "concat()")
        if skips:
            empty = exp.Literal.string("")
            args = [exp.Coalesce(this=arg, expressions=[empty.copy()]) for arg in args]
        return exp.Concat(expressions=args, safe=True, coalesce=False)

    def _pipe(self, node: Node) -> Node:
        if self.meanings.empty_is_null:
            raise self._refused("||, which takes NULL for an empty text,", SPARKS)
        return exp.DPipe(this=node.this.copy(), expression=node.expression.copy(), safe=True)

    def _end(self, node: Node) -> Node:
        self._require_count(node.expression, f"{type(node).__name__.lower()}()", least=0)
        # T-SQL's parser puts a cast around the text.
        return type(node)(this=_without_cast(node.this).copy(), expression=node.expression.copy())

    def _substring(self, node: Node) -> Node:
        start, length = node.args.get("start"), node.args.get("length")
        if start is None:
            raise self._refused("substring() without a start", "write substring(x, 1)")
        self._require_count(start, "substring()", least=1)
        if length is not None:
            self._require_count(length, "substring()", least=0)
        node.set("zero_start", None)
        return node

    def _require_count(self, node: Node, what: str, *, least: int) -> None:
        text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
        if not text.isdecimal() or int(text) < least:
            raise self._refused(
                f"{what} with another position or length than a number from {least}",
                f"write a number from {least}, or {SPARKS[len('write ') :]}",
            )

    def _length(self, node: Node) -> Node:
        if not self.meanings.length_of_characters:
            raise self._refused("length(), which counts bytes or leaves out spaces,", SPARKS)
        self._require(node.this, frozenset({TypeKind.STRING}), "length()")
        return node

    def _case(self, node: Node) -> Node:
        if not self.meanings.unicode_case:
            raise self._refused(
                f"{type(node).__name__.lower()}(), which changes ASCII letters only,", SPARKS
            )
        return node

    def _trim(self, node: Node) -> Node:
        if not self.meanings.trims_spaces:
            raise self._refused("trim(), which takes more than spaces away,", SPARKS)
        return node

    def _search(self, node: Node) -> Node:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string or not pattern.this:
            raise self._refused(
                "a search for a text that is not a literal", "write the text into it"
            )
        return node

    # --- other functions -----------------------------------------------------------------------

    def _mean(self, node: Node) -> Node:
        operand = node.this
        distinct = isinstance(operand, exp.Distinct)
        if self._are(operand, _DOUBLE) or self.meanings.division is Division.SPARK:
            return node
        if (
            self.meanings.aggregates.mean is not True
            or distinct
            or TypeKind.FLOAT in self._kinds(operand)
        ):
            cast = node.parent
            if isinstance(cast, exp.Cast) and cast.to.this is DType.DECIMAL:
                remedy = f"{SPARKS}: {as_written(cast)}"
            else:
                inner = operand.expressions[0] if distinct else operand
                shown = as_written(_cast(inner.copy(), DType.DOUBLE))
                remedy = f"write avg({'DISTINCT ' * distinct}{shown})"
            raise self._refused(
                "avg() of integers or decimals, which has other digits in Spark,", remedy
            )
        return exp.Avg(this=_cast(operand.copy(), DType.DOUBLE))

    def _spread(self, node: Node) -> Node:
        name = f"{type(node).__name__.lower()}()"
        if not self.meanings.aggregates.sample and isinstance(node, exp.Stddev | exp.Variance):
            raise self._refused(name, "write stddev_samp, stddev_pop or var_pop")
        if self.meanings.aggregates.mean is not True and not self._are(node.this, _DOUBLE):
            raise self._refused(
                f"{name} of an expression that is possibly not a double",
                "write CAST(x AS DOUBLE) in it",
            )
        return node

    def _function(self, node: Node) -> Node:
        name = str(node.this).lower()
        if name == "age" and self.dialect == "postgres":
            if isinstance(node.parent, exp.Extract):
                return node
            raise age_refusal(node, self.dialect)
        if name not in _OWN:
            raise self._refused(f"{node.this}()", SPARKS)
        return node

    # --- rows and joins ------------------------------------------------------------------------

    def _rows(self, node: Node) -> Node:
        if not isinstance(node.this, exp.Tuple) or self.meanings.rows_of_nulls is True:
            return node
        if self.meanings.rows_of_nulls is None or isinstance(node, exp.NullSafeEQ):
            raise self._refused("a comparison of rows", "compare their columns one by one")
        if isinstance(node, exp.In):
            if not all(isinstance(item, exp.Tuple) for item in node.expressions):
                raise self._refused("IN with a row", "compare its columns one by one")
            made = [self._equal(node.this, item) for item in node.expressions]
            return exp.Paren(this=reduce(lambda a, b: exp.Or(this=a, expression=b), made))
        equal = exp.Paren(this=self._equal(node.this, node.expression))
        return exp.Not(this=equal) if isinstance(node, exp.NEQ) else equal

    def _equal(self, left: Node, right: Node) -> Node:
        if not isinstance(right, exp.Tuple) or len(left.expressions) != len(right.expressions):
            raise self._refused("a comparison of rows of other lengths", "write as many columns")
        pairs: list[Node] = [
            exp.EQ(this=a.copy(), expression=b.copy())
            for a, b in zip(left.expressions, right.expressions, strict=True)
        ]
        return conjunction(pairs)

    def _distinct_from(self, node: Node) -> Node:
        same = exp.NullSafeEQ(this=node.this.copy(), expression=node.expression.copy())
        return exp.Not(this=exp.Paren(this=same))

    def _join(self, node: Node) -> Node:
        side, kind, method = (
            str(node.args.get(name) or "").upper() for name in ("side", "kind", "method")
        )
        if "ASOF" in (kind, method) and self.dialect in _ASOF:
            return self._as_of(node, side)
        if kind not in _JOINS or method not in ("", "NATURAL"):
            raise self._refused(f"a {method or kind} JOIN", "write JOIN ... ON")
        outer = side in ("LEFT", "RIGHT", "FULL") and kind not in ("SEMI", "ANTI")
        if outer and not self.meanings.outer_nulls:
            raise self._refused(
                f"a {side} JOIN, which has no NULLs,", f"{SPARKS}, or write a LEFT SEMI JOIN"
            )
        return node

    def _unnest(self, node: Node) -> Node:
        """Translate ``UNNEST(x) AS t(item)`` in FROM."""
        values, alias = node.expressions, node.args.get("alias")
        if self.dialect not in _UNNEST or len(values) != 1 or node.args.get("offset"):
            raise self._refused(
                "UNNEST here", f"{SPARKS}: LATERAL VIEW posexplode(x) t AS place, item"
            )
        if self.dialect in _SPREADING and not self.types.has_plain_elements(values[0]):
            raise self._refused(
                "UNNEST of rows, whose fields become columns,",
                f"{SPARKS}: LATERAL VIEW inline(x) t AS a, b",
            )
        if alias is None or len(alias.args.get("columns") or ()) != 1:
            raise self._refused("UNNEST without the name of its column", "write AS t(item)")
        call = exp.Anonymous(this="explode", expressions=[values[0].copy()])
        return exp.Lateral(this=call, alias=alias.copy())

    def _listed_unnest(self, node: Node) -> Node:
        """Translate ``unnest(x)`` in the SELECT list."""
        if self.dialect != "duckdb":
            remedy = "write CROSS JOIN UNNEST(x) AS t(item)"
            raise self._refused("UNNEST in the SELECT list", remedy)
        return exp.Anonymous(this="explode", expressions=[node.this.copy()])

    def _as_of(self, node: Node, side: str) -> Node:
        if side == "LEFT" and not self.meanings.outer_nulls:
            raise self._refused("an ASOF LEFT JOIN, which has no NULLs,", SPARKS)
        node.set("kind", None)
        node.set("method", "ASOF")
        # Snowflake's ASOF JOIN keeps left rows without a match.
        node.set("side", "LEFT" if self.dialect == "snowflake" else side)
        return node


def _cast(node: Node, to: DType) -> Node:
    return exp.Cast(this=node, to=exp.DataType(this=to, nested=False))


def _compared(node: Node) -> Node | None:
    """The comparison that has the translated ``node`` as an operand; None if there is none."""
    found = node.parent
    while isinstance(found, exp.Paren | exp.Add | exp.Sub):
        found = found.parent
    return found if isinstance(found, _COMPARISONS) else None


def _without_cast(node: Node) -> Node:
    is_text = isinstance(node, exp.Cast) and node.to.this is DType.TEXT
    return node.this if is_text else node


def _moved(side: Node) -> Node:
    """The time in a dialect's expression ``side``, a time plus or minus intervals."""
    first = side
    while isinstance(first, exp.Add | exp.Sub | exp.Paren):
        first = first.this
    return side if first.find(exp.Interval) else first


def _is_moment(node: Node) -> bool:
    """Whether a node is a literal date or timestamp in ISO format without time zone, or NULL."""
    if not isinstance(node, exp.Literal) or not node.is_string:
        return isinstance(node, exp.Null)
    text = str(node.this)
    date, _, time = text.replace("T", " ").partition(" ")
    parts = date.split("-")
    whole = [len(p) for p in parts] == [4, 2, 2] and all(p.isdecimal() for p in parts)
    digits = time.replace(":", "").replace(".", "")
    return whole and (not time or (digits.isdecimal() and time.count(":") == 2))
