"""Errors for SQL functions that queries can't call; their remedies repeat the call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.unresolved import GENERATORS, Node, as_written, unsupported

_FROM_ROW = "compute it from the row, so that it is the same each time"
_SHARE = f"{_FROM_ROW}: pmod(hash(x), 100) for a number, with the columns of its key as x"
_ID = f"{_FROM_ROW}: md5(concat_ws('-', x)) for an id, with the columns of its key as x"


def refusal(name: str, arguments: Sequence[Node]) -> QueryError | None:
    """The error for a call of the unsupported function ``name``, whose remedy contains the
    arguments; None for a function without a remedy of its own.

    >>> from sqlglot import exp
    >>> refusal("truncate", [exp.column("price"), exp.Literal.number(1)]).remedy
    'write CAST(price * 10 AS BIGINT) / 10'
    """
    made = _REFUSED.get(name)
    return None if made is None else made([as_written(one) for one in arguments])


def _truncate(given: list[str]) -> QueryError:
    value, digits = given[0] if given else "x", given[1] if len(given) > 1 else "0"
    whole = f"CAST({value} AS BIGINT)"
    if digits.isdecimal() and 0 < int(digits) < 19:
        step = 10 ** int(digits)
        whole = f"CAST({value} * {step} AS BIGINT) / {step}"
    return unsupported("truncate(), as Spark has no such function,", f"write {whole}")


def _make_interval(given: list[str]) -> QueryError:
    years, months, weeks, *others = [*given, *["0"] * 7][:7]
    days = others[0] if weeks == "0" else f"7 * {weeks}"
    if "0" not in (weeks, others[0]):
        days += f" + {others[0]}"
    while others[-1:] == ["0"]:
        others.pop()
    parts = [f"make_ym_interval({years}, {months})"] if (years, months) != ("0", "0") else []
    if others or weeks != "0" or not parts:
        parts.append(f"make_dt_interval({', '.join([days, *others[1:]])})")
    what = "make_interval(), as months and days have no common type,"
    return unsupported(what, f"write {' + '.join(parts)}")


def _of_text(name: str, remedy: str) -> Callable[[list[str]], QueryError]:
    def made(given: list[str]) -> QueryError:
        return unsupported(f"{name}()", f"write {remedy.format(given[0] if given else 'x')}")

    return made


def _of_rows(name: str) -> Callable[[list[str]], QueryError]:
    def made(given: list[str]) -> QueryError:
        called = f"{name}({', '.join(given)})"
        remedy = f"write LATERAL VIEW {called} t AS item after FROM, and item here"
        return unsupported(f"{called}, which makes several rows, inside an expression", remedy)

    return made


def _not_repeatable(name: str, remedy: str) -> Callable[[list[str]], QueryError]:
    def made(given: list[str]) -> QueryError:
        return QueryError(
            "unsupported-sql",
            f"{name}() gives another value each time, so a result could not be repeated",
            remedy=remedy,
        )

    return made


def _age(given: list[str]) -> QueryError:
    later, earlier = given[:2] if len(given) > 1 else ("now()", *given, "ts")[:2]
    return unsupported("age()", f"write {later} - {earlier}")


def _filled(name: str, remedy: str, *defaults: str) -> Callable[[list[str]], QueryError]:
    """The error for an SQL function; its ``remedy`` has the call's arguments, or ``defaults``."""

    def made(given: list[str]) -> QueryError:
        values = [*given, *defaults[len(given) :]]
        return unsupported(f"{name}()", f"write {remedy.format(*values)}")

    return made


def _split_index(given: list[str]) -> QueryError:
    text, mark, index = [*given, *("x", "','", "0")[len(given) :]][:3]
    number = str(int(index) + 1) if index.isdecimal() else f"{index} + 1"
    return unsupported("split_index()", f"write split_part({text}, {mark}, {number}), from 1")


_REFUSED: dict[str, Callable[[list[str]], QueryError]] = {
    "truncate": _truncate,
    "json_tuple": _of_text(
        "json_tuple", "get_json_object({}, '$.a'), or json_tuple as an item of the SELECT list"
    ),
    "strpos": _of_text("strpos", "instr({}, 'text')"),
    "string_to_array": _of_text("string_to_array", "split({}, ',')"),
    "regexp_split_to_array": _of_text("regexp_split_to_array", "split({}, '[,;]')"),
    "regexp_matches": _of_text("regexp_matches", "regexp_extract({}, '(pattern)', 1)"),
    "regexp_match": _of_text("regexp_match", "regexp_extract({}, '(pattern)', 1)"),
    "age": _age,
    "split_index": _split_index,
    "json_value": _filled("json_value", "get_json_object({0}, {1})", "x", "'$.a'"),
    "json_query": _filled("json_query", "get_json_object({0}, {1})", "x", "'$.a'"),
    "json_extract_path_text": _of_text("json_extract_path_text", "get_json_object({}, '$.a.b')"),
    "generate_series": _filled(
        "generate_series", "explode(sequence({0}, {1})), one in a SELECT list", "1", "n"
    ),
    "time_slice": _filled(
        "time_slice", "date_bin(INTERVAL '{1}' MINUTE, {0}, TIMESTAMP '1970-01-01')", "ts", "15"
    ),
    "div0": _filled("div0", "CASE WHEN {1} = 0 THEN 0 ELSE {0} / {1} END", "x", "y"),
    "square": _filled("square", "power({0}, 2)", "x"),
    "regexp_substr": _filled(
        "regexp_substr", "nullif(regexp_extract({0}, {1}, 0), '')", "x", "'pattern'"
    ),
    "zeroifnull": _of_text("zeroifnull", "coalesce({}, 0)"),
    "nullifzero": _of_text("nullifzero", "nullif({}, 0)"),
    "try_to_number": _filled("try_to_number", "TRY_CAST({0} AS DECIMAL(38, 0))", "x"),
    "to_number": _of_text("to_number", "CAST({} AS DECIMAL(10, 2))"),
    "starts_with": _of_text("starts_with", "startswith({}, 'text')"),
    "array_length": _of_text("array_length", "size({})"),
    "list_contains": _of_text("list_contains", "array_contains({}, x)"),
    "strftime": _of_text("strftime", "date_format({}, 'yyyy-MM-dd')"),
    "jsonb_array_length": _of_text(
        "jsonb_array_length", "array_size(from_json({}, 'array<string>'))"
    ),
    "try_make_interval": _make_interval,
    "to_variant_object": _of_text("to_variant_object", "parse_json(to_json({}))"),
    "json_array_length": _of_text(
        "json_array_length", "array_size(from_json({}, 'array<string>'))"
    ),
    "json_object_keys": _of_text(
        "json_object_keys", "map_keys(from_json({}, 'map<string, string>'))"
    ),
    **{name: _of_rows(name) for name in GENERATORS},
    **{name: _not_repeatable(name, _SHARE) for name in ("rand", "random", "randn", "randstr")},
    **{name: _not_repeatable(name, _ID) for name in ("uuid", "monotonically_increasing_id")},
}
