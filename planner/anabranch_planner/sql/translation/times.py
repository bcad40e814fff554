"""Translation of dialects' functions of dates and times, whose units differ between dialects."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.expressions import DType

from anabranch_contract.queries.types import TypeKind
from anabranch_planner.sql.clauses.char_patterns import as_sparks
from anabranch_planner.sql.translation.kinds import Types
from anabranch_planner.sql.translation.rules import SPARKS, DialectRules, call_of
from anabranch_planner.sql.unresolved import Node, as_written, unsupported

_MOMENTS = frozenset({TypeKind.TIMESTAMP})
_DATES = frozenset({TypeKind.DATE})
#: Node type of a function of times -> the arguments that are translated.
READ: dict[type[Node], frozenset[str]] = {
    # The value of ``input_type_preserved`` depends on the dialect, not on the statement.
    exp.TimestampTrunc: frozenset({"this", "unit", "input_type_preserved"}),
    exp.DateDiff: frozenset({"this", "expression", "unit", "date_part_boundary"}),
    exp.DateAdd: frozenset({"this", "expression", "unit"}),
    exp.TsOrDsToDate: frozenset({"this"}),
    exp.TimeSlice: frozenset({"this", "expression", "unit"}),
    exp.CurrentTimestamp: frozenset(),
    exp.CurrentDate: frozenset(),
}
#: Parts of EXTRACT with the same meaning in all dialects.
_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE"})
#: Part of EXTRACT in PostgreSQL and DuckDB -> the same number in Spark.
_NUMBERED = {"DOW": "dayofweek({}) - 1", "ISODOW": "weekday({}) + 1", "DOY": "dayofyear({})",
             "WEEK": "weekofyear({})"}  # fmt: skip
_NUMBERING = frozenset({"duckdb", "postgres", "redshift"})
_UNITS = frozenset({"YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND"})
#: Dialect -> units to which it truncates timestamps as Spark does, with weeks from Monday.
_TRUNCATED = {
    **dict.fromkeys(("duckdb", "postgres", "presto", "redshift", "trino"), _UNITS | {"WEEK"}),
    **dict.fromkeys(("bigquery", "snowflake"), _UNITS),
}
#: Dialects whose ``datediff`` counts the beginnings of units between two times.
_BOUNDARIES = frozenset({"duckdb", "redshift", "snowflake", "tsql"})
_MOVED = frozenset({"redshift", "snowflake", "tsql"})
#: Dialects whose ``current_timestamp`` is a point in time; in others it may be a local time.
_CURRENT = frozenset({"bigquery", "duckdb", "postgres", "snowflake", "trino"})
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


class TimeRules(DialectRules):
    """Translation rules for the functions of times in one statement, by type of syntax node."""

    def __init__(self, dialect: str, types: Types) -> None:
        super().__init__(dialect, types)
        self.by_type: dict[type[Node], Callable[[Node], Node]] = {
            exp.Extract: self._extract,
            exp.TimestampTrunc: self._truncated,
            exp.DateDiff: self._apart,
            exp.DateAdd: self._moved,
            exp.TsOrDsToDate: self._date,
            exp.TimeSlice: self._slice,
            exp.CurrentTimestamp: self._current,
            exp.CurrentDate: self._current,
        }

    def _extract(self, node: Node) -> Node:
        unit, value = node.name.upper(), node.expression
        called = str(value.this).lower() if isinstance(value, exp.Anonymous) else ""
        if called == "age" and self._dialect == "postgres":
            return self._of_age(unit, value)
        if unit in _PARTS:
            return node
        numbered = _NUMBERED.get(unit)
        if numbered is not None and self._dialect in _NUMBERING:
            if not self._are(value, _MOMENTS | _DATES):
                raise self._refused(
                    f"EXTRACT of {unit} from an expression that may not be a date or timestamp",
                    SPARKS,
                )
            name, _, step = numbered.partition("({})")
            call = call_of(name, value)
            if not step:
                return call
            kind = exp.Add if step.startswith(" +") else exp.Sub
            return exp.Paren(this=kind(this=call, expression=exp.Literal.number(1)))
        if unit == "EPOCH" and self._dialect == "postgres":
            return self._epoch(value)
        raise self._refused(f"EXTRACT of {unit}", SPARKS)

    def _epoch(self, value: Node) -> Node:
        """Translate EPOCH: seconds of a timestamp, or between two, with six fraction digits."""
        while isinstance(value, exp.Paren):
            value = value.this
        sides = [value.this, value.expression] if isinstance(value, exp.Sub) else [value]
        if not all(self._are(side, _MOMENTS) for side in sides):
            raise self._refused(
                "EXTRACT of EPOCH from an expression that may not be a timestamp, or a difference "
                "of two,",
                f"{SPARKS}: EXTRACT(EPOCH FROM {as_written(value)}), a DOUBLE",
            )
        micros = [call_of("unix_micros", side) for side in sides]
        whole: Node = micros[0]
        if len(micros) > 1:
            whole = exp.Paren(this=exp.Sub(this=micros[0], expression=micros[1]))
        digits = [exp.DataTypeParam(this=exp.Literal.number(n)) for n in (20, 0)]
        exact = exp.Cast(this=whole, to=exp.DataType(this=DType.DECIMAL, expressions=digits))
        return exp.Paren(this=exp.Mul(this=exact, expression=exp.Literal.number("0.000001")))

    def _of_age(self, unit: str, age: Node) -> Node:
        """Translate YEAR or MONTH of PostgreSQL's ``age(a, b)``: whole ones between two times."""
        later, earlier = age.expressions[0], age.expressions[-1]
        if len(age.expressions) != 2 or unit not in ("YEAR", "MONTH"):
            raise age_refusal(age, self._dialect)
        for side in (later, earlier):
            if not self._are(side, _MOMENTS | _DATES):
                raise age_refusal(age, self._dialect)
        sides = [
            exp.Cast(this=side.copy(), to=exp.DataType(this=DType.TIMESTAMPTZ))
            for side in (later, earlier)
        ]
        ahead = exp.LT(this=sides[0].copy(), expression=sides[1].copy())
        back = exp.Neg(this=_months(sides[1], sides[0]))
        months = exp.Case(ifs=[exp.If(this=ahead, true=back)], default=_months(*sides))
        kind, twelve = exp.IntDiv if unit == "YEAR" else exp.Mod, exp.Literal.number(12)
        return exp.Paren(this=kind(this=months, expression=twelve))

    def _truncated(self, node: Node) -> Node:
        unit = str(node.args["unit"].name).upper()
        if unit not in _TRUNCATED.get(self._dialect, ()):
            raise self._refused(f"the unit {unit} of date_trunc()", SPARKS)
        if not self._are(node.this, _MOMENTS):
            raise self._refused(
                "date_trunc() of an expression that may not be a timestamp",
                f"write date_trunc('{unit.lower()}', CAST({as_written(node.this)} AS TIMESTAMP))",
            )
        return call_of("date_trunc", exp.Literal.string(unit), node.this)

    def _apart(self, node: Node) -> Node:
        """Translate the dialect's ``datediff``, which counts the beginnings of units."""
        unit = str(node.args["unit"].name if node.args.get("unit") else "DAY").upper()
        later, earlier = node.this, node.expression
        if self._dialect not in _BOUNDARIES or unit not in _UNITS:
            raise self._refused(
                "datediff()",
                f"{SPARKS}: timestampdiff({unit}, {as_written(earlier)}, {as_written(later)}) "
                "counts whole units",
            )
        for side in (earlier, later):
            if not self._are(side, _MOMENTS | _DATES):
                raise self._refused(
                    "datediff() of an expression that may not be a date or timestamp", SPARKS
                )
        begun = [call_of("date_trunc", exp.Literal.string(unit), side) for side in (earlier, later)]
        return call_of("timestampdiff", exp.Var(this=unit), *begun)

    def _moved(self, node: Node) -> Node:
        """Translate the dialect's ``dateadd``."""
        unit = str(node.args["unit"].name if node.args.get("unit") else "DAY").upper()
        value, count = node.this, node.expression
        number = count.this if isinstance(count, exp.Neg) else count
        if self._dialect not in _MOVED or not (number.is_int or self._are(number, _WHOLE)):
            raise self._refused("dateadd()", f"{SPARKS}: {as_written(value)} + INTERVAL '1' {unit}")
        if self._are(value, _MOMENTS) and unit in _UNITS | {"WEEK"}:
            return call_of("timestampadd", exp.Var(this=unit), count, value)
        for steps, name in ((_DAYS, "date_add"), (_MONTHS, "add_months")):
            if unit in steps and self._are(value, _DATES) and self._dialect == "snowflake":
                by = exp.Mul(this=count.copy(), expression=exp.Literal.number(steps[unit]))
                return call_of(name, value, count if steps[unit] == 1 else by)
        raise self._refused(
            f"dateadd() of {unit} to an expression that may not be a timestamp",
            f"write dateadd({unit}, {as_written(count)}, CAST({as_written(value)} AS TIMESTAMP))",
        )

    def _date(self, node: Node) -> Node:
        if not self._are(node.this, _MOMENTS | _DATES):
            raise self._refused("to_date() of an expression that may be a text", SPARKS)
        return exp.Cast(this=node.this.copy(), to=exp.DataType(this=DType.DATE))

    def _slice(self, node: Node) -> Node:
        """Translate Snowflake's ``time_slice(ts, 15, 'MINUTE')``, which counts from 1970-01-01."""
        unit, size = str(node.args["unit"].name).upper(), node.expression
        if unit not in ("SECOND", "MINUTE", "HOUR", "DAY") or not size.is_int:
            raise self._refused(
                "time_slice() of weeks or longer units",
                f"{SPARKS}: date_trunc('{unit}', {as_written(node.this)})",
            )
        if not self._are(node.this, _MOMENTS):
            raise self._refused(
                "time_slice() of an expression that may not be a timestamp",
                f"write CAST({as_written(node.this)} AS TIMESTAMP) in it",
            )
        step = exp.Interval(this=exp.Literal.string(size.name), unit=exp.Var(this=unit))
        first = exp.Cast(
            this=exp.Literal.string("1970-01-01 00:00:00"), to=exp.DataType(this=DType.TIMESTAMP)
        )
        return call_of("date_bin", step, node.this, first)

    def _current(self, node: Node) -> Node:
        if self._dialect not in _CURRENT:
            raise self._refused("the current time, which may be a local time,", SPARKS)
        return node


_WHOLE = frozenset({TypeKind.TINYINT, TypeKind.SMALLINT, TypeKind.INT})


def _months(later: Node, earlier: Node) -> exp.Paren:
    """Whole months between two timestamps: the difference of their months, less one if the later
    timestamp is less far in its month than the earlier one in its own."""
    begun = [call_of("date_trunc", exp.Literal.string("MONTH"), one) for one in (earlier, later)]
    whole = call_of("timestampdiff", exp.Var(this="MONTH"), *begun)
    passed = [
        exp.Paren(this=exp.Sub(this=one.copy(), expression=start.copy()))
        for one, start in zip((earlier, later), begun, strict=True)
    ]
    less = exp.GT(this=passed[0], expression=passed[1])
    one, none = exp.Literal.number(1), exp.Literal.number(0)
    rest = exp.Case(ifs=[exp.If(this=less, true=one)], default=none)
    return exp.Paren(this=exp.Sub(this=whole, expression=rest))


def age_refusal(age: Node, dialect: str) -> Exception:
    """The error for a whole interval of PostgreSQL's ``age``, which has no type in Spark."""
    given = [as_written(one) for one in age.expressions[:2]] or ["ts"]
    later, earlier = given if len(given) > 1 else ("current_date", *given)
    return unsupported(
        f"age(), whose value has months beside days, (read as {dialect})",
        f"write EXTRACT(YEAR FROM age({later}, {earlier})) or MONTH for whole ones, "
        f"{later} - {earlier} for days and times",
    )


#: Argument of ``make_interval`` -> its unit.
_LENGTHS = ("year", "month", "week", "day", "hour", "minute", "second")


def in_other_calls(node: Node) -> str | None:
    """The remedy for PostgreSQL's ``make_interval`` and Snowflake's ``to_varchar``, with calls that
    can be read; None for other nodes."""
    if isinstance(node, exp.MakeInterval):
        given = [(unit, node.args.get(unit)) for unit in _LENGTHS]
        lengths = [
            f"{as_written(value.expression if isinstance(value, exp.Kwarg) else value)} * "
            f"INTERVAL '1 {unit}'"
            for unit, value in given
            if value is not None and value.name != "0"
        ]
        return f"write {' + '.join(lengths)}" if lengths else None
    if not isinstance(node, exp.ToChar):
        return None
    value, pattern = as_written(node.this), node.args.get("format")
    if pattern is None:
        return f"write CAST({value} AS VARCHAR)"
    if not isinstance(pattern, exp.Literal):
        return None
    try:
        spelled = as_sparks(pattern.name)
    except ValueError:
        spelled = ""
    if not any(letter.isalpha() for letter in spelled):
        return f"{SPARKS}: to_char({value}, '{pattern.name}')"
    return f"{SPARKS}: date_format({value}, '{spelled}')"
