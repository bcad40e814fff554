"""Translation of other dialects' functions of texts and numbers, and of their special arguments."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp
from sqlglot.errors import ErrorLevel

from anabranch_contract.queries.types import INTEGRAL, NUMERIC, TypeKind
from anabranch_planner.sql.translation.kinds import Types
from anabranch_planner.sql.translation.meanings import Meanings
from anabranch_planner.sql.translation.rules import SPARKS, DialectRules, call_of
from anabranch_planner.sql.unresolved import Node, as_written

_TEXT = frozenset({TypeKind.STRING})
_EXACT = INTEGRAL | {TypeKind.DECIMAL}
#: Type of SQL node -> the arguments that are translated. Arguments in the second line of a set
#: depend on the dialect, not on the statement.
READ: dict[type[Node], frozenset[str]] = {
    exp.Is: frozenset({"this", "expression", "negate"}),
    exp.Star: frozenset({"except_", "replace"}),
    **dict.fromkeys((exp.Greatest, exp.Least), frozenset({"this", "expressions", "ignore_nulls"})),
    exp.Round: frozenset({"this", "decimals", "casts_non_integer_decimals"}),
    **dict.fromkeys((exp.Ceil, exp.Floor), frozenset({"this"})),
    exp.SplitPart: frozenset({
        "this", "delimiter", "part_index",
        "part_index_zero_as_one", "empty_delimiter_returns_whole",
    }),
    exp.StrPosition: frozenset({"this", "substr"}),
    exp.Contains: frozenset({"this", "expression"}),
    exp.Replace: frozenset({"this", "expression", "replacement"}),
    **dict.fromkeys((exp.RegexpLike, exp.RegexpILike), frozenset({"this", "expression"})),
    exp.ArrayAgg: frozenset({"this", "nulls_excluded"}),
    exp.CountIf: frozenset({"this", "zero_on_all_null"}),
}  # fmt: skip
#: Functions that remedies in Spark's dialect may name.
_NAMES = (
    "abs add_months array_contains array_distinct array_join array_max array_min array_size "
    "array_sort ascii ceil chr coalesce concat_ws date_add date_format date_sub date_trunc "
    "datediff dayofmonth dayofweek dayofyear element_at exp explode extract flatten floor "
    "from_json from_unixtime get_json_object greatest hex if initcap instr last_day least left "
    "levenshtein ln locate log10 log2 lpad ltrim make_date map_keys map_values md5 months_between "
    "next_day nullif parse_json power quarter regexp_extract regexp_replace repeat replace "
    "reverse right rlike round rpad rtrim sequence sha sha1 sha2 sign size slice sort_array split "
    "sqrt substring to_date to_json to_timestamp translate trim trunc unix_timestamp "
    "upper lower weekofyear width_bucket"
)
NAMED = frozenset(_NAMES.split())
_CALLED = re.compile(r"([A-Za-z_]\w*)\(")
#: Dialects whose ``greatest`` and ``least`` leave NULLs out, as Spark's do.
_SKIPPING = frozenset({"duckdb", "postgres", "redshift"})
#: Dialects that round halves of integers and decimals away from zero, as Spark does.
_ROUNDING = frozenset({"bigquery", "duckdb", "postgres", "redshift", "snowflake", "trino"})
#: Dialects whose searches compare characters one by one.
_SEARCHING = frozenset({"bigquery", "duckdb", "postgres", "redshift", "snowflake", "trino"})
#: Dialects whose ``split_part`` returns an empty text beyond the last part, as Spark's does.
_SPLITTING = frozenset({"duckdb", "postgres", "redshift", "snowflake"})
#: Elements of PostgreSQL's patterns with the same meaning in Spark: a class, an end, a digit etc.
_PATTERN = re.compile(
    r"(?P<kept>\[\^?[A-Za-z0-9 _:,/@#%;=!<>.+*$()|-]+\])|(?P<end>\$)|(?P<digit>\\d)|(?P<other>"
    r"[A-Za-z0-9 _:,/@#%&;=!~<>'\"|^).-]|\((?![?*])|\\[.+*?()\[\]|^$/-]"
    r"|[*+?](?![*+?])|\{\d{1,3}(?:,\d{0,3})?\}(?![*+?]))"
)
_IN_SPARK = {"end": r"\z", "digit": "[0-9]"}


class FunctionRules(DialectRules):
    """Translation rules for functions in one statement, by type of syntax node."""

    def __init__(self, dialect: str, meanings: Meanings, types: Types) -> None:
        super().__init__(dialect, types)
        self._meanings = meanings
        self.by_type: dict[type[Node], Callable[[Node], Node]] = {
            exp.Is: self._is,
            exp.Greatest: self._extreme,
            exp.Least: self._extreme,
            exp.Round: self._round,
            exp.Ceil: self._whole,
            exp.Floor: self._whole,
            exp.SplitPart: self._part,
            exp.StrPosition: self._position,
            exp.Contains: self._contains,
            exp.Replace: self._replace,
            exp.RegexpLike: self._pattern,
            exp.RegexpILike: self._pattern,
            exp.ArrayAgg: self._array,
        }

    def _is(self, node: Node) -> Node:
        if not node.args.get("negate"):
            return node
        if isinstance(node.this, exp.Tuple):
            raise self._refused("IS NOT NULL of a row", "test its columns one by one")
        return exp.Not(this=exp.Is(this=node.this.copy(), expression=node.expression.copy()))

    # --- numbers -------------------------------------------------------------------------------

    def _extreme(self, node: Node) -> Node:
        """Translate ``greatest`` or ``least``, which differ between dialects in NULLs."""
        name = type(node).__name__.lower()
        values = [node.this, *node.expressions]
        if self._dialect not in _SKIPPING:
            raise self._refused(
                f"{name}(), which is NULL if an argument is",
                f"{SPARKS}, where {_shown(name, values)} leaves NULLs out",
            )
        kinds = [self._types.of(value) for value in values if not isinstance(value, exp.Null)]
        alike = all(kinds) and len(frozenset().union(*kinds)) <= 1
        if not alike and not (all(kinds) and frozenset().union(*kinds) <= NUMERIC):
            raise self._refused(f"{name}() of values that may be of several types", SPARKS)
        return call_of(name, *values)

    def _round(self, node: Node) -> Node:
        digits = node.args.get("decimals")
        if self._dialect not in _ROUNDING or not self._are(node.this, _EXACT):
            raise self._refused(
                "round() of an expression that may be a double",
                f"{SPARKS}, where halves of doubles are rounded away from zero",
            )
        if digits is not None and not _is_number(digits, least=0):
            raise self._refused("round() to digits that are no literal", SPARKS)
        return call_of("round", node.this, *([digits] if digits is not None else []))

    def _whole(self, node: Node) -> Node:
        """Translate ``floor`` or ``ceil``, which differ between dialects for doubles."""
        name = type(node).__name__.lower()
        if self._dialect not in _ROUNDING or not self._are(node.this, _EXACT):
            raise self._refused(
                f"{name}() of an expression that may be a double",
                f"{SPARKS}, where {_shown(name, [node.this])} is a BIGINT",
            )
        return call_of(name, node.this)

    # --- texts ---------------------------------------------------------------------------------

    def _part(self, node: Node) -> Node:
        """Translate ``split_part(text, separator, number)``."""
        text, mark, number = node.this, node.args["delimiter"], node.args["part_index"]
        named = _shown("split_part", [text, mark, number])
        if self._dialect not in _SPLITTING:
            raise self._refused("split_part()", f"{SPARKS}: {named}")
        if not _is_text(mark) or not _is_number(number, least=1):
            raise self._refused(
                "split_part() with a separator or a number that is no literal, or no number from 1",
                f"{SPARKS}: {named}",
            )
        return call_of("split_part", text, mark, number)

    def _position(self, node: Node) -> Node:
        self._search("position()", node, node.args["substr"])
        return call_of("locate", node.args["substr"], node.this)

    def _contains(self, node: Node) -> Node:
        self._search("contains()", node, node.expression)
        return call_of("contains", node.this, node.expression)

    def _replace(self, node: Node) -> Node:
        self._search("replace()", node, node.expression)
        if not _is_text(node.args.get("replacement"), empty=True):
            raise self._refused("replace() by a text that is no literal", SPARKS)
        return call_of("replace", node.this, node.expression, node.args["replacement"])

    def _search(self, name: str, node: Node, sought: Node) -> None:
        """Reject a search in a text that compares characters differently in this dialect."""
        if self._dialect not in _SEARCHING or not self._meanings.length_of_characters:
            raise self._refused(name, SPARKS)
        if not _is_text(sought) or not self._are(node.this, _TEXT):
            raise self._refused(f"{name} of other expressions than a text and a literal", SPARKS)

    def _pattern(self, node: Node) -> Node:
        """Translate PostgreSQL's ``x ~ 'pattern'``, in which ``.`` matches every character."""
        pattern, insensitive = node.expression, isinstance(node, exp.RegexpILike)
        remedy = f"{SPARKS}: {as_written(node.this)} RLIKE {as_written(pattern)}"
        if self._dialect != "postgres" or not _is_text(pattern):
            raise self._refused("a regular expression", remedy)
        text, made = str(pattern.this), "(?is)" if insensitive else "(?s)"
        place = 0
        while found := _PATTERN.match(text, place):
            made += _IN_SPARK.get(str(found.lastgroup), found[0])
            place = found.end()
        if place < len(text) or (insensitive and not text.isascii()):
            raise self._refused(f"the pattern {as_written(pattern)}", remedy)
        return exp.RegexpLike(this=node.this.copy(), expression=exp.Literal.string(made))

    # --- arrays --------------------------------------------------------------------------------

    def _array(self, node: Node) -> Node:
        value = node.this.this if isinstance(node.this, exp.Order) else node.this
        if self._dialect != "snowflake":
            raise self._refused(
                "array_agg(), which keeps NULLs,",
                f"{SPARKS}, where array_agg({as_written(value)}) leaves them out",
            )
        if isinstance(node.parent, exp.WithinGroup):
            return node
        return exp.ArrayAgg(this=node.this.copy())


def in_sparks_calls(node: Node) -> str | None:
    """The remedy for a call that Spark writes in the same or another way; None for other nodes."""
    if not isinstance(node, exp.Func) or isinstance(node, exp.Anonymous | exp.AggFunc):
        return None
    shown = node.sql("spark", unsupported_level=ErrorLevel.IGNORE)
    called = {name.lower() for name in _CALLED.findall(shown)}
    return f"{SPARKS}: {shown}" if called and called <= NAMED else None


def _is_text(node: Node | None, *, empty: bool = False) -> bool:
    """Whether ``node``, an argument in a dialect, is a literal text; ``empty``: it may be empty."""
    return isinstance(node, exp.Literal) and node.is_string and (empty or bool(node.this))


def _is_number(node: Node, *, least: int) -> bool:
    """Whether ``node``, an argument in a dialect, is a literal integer from ``least`` on."""
    is_number = isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()
    return is_number and int(node.name) >= least


def _shown(name: str, arguments: list[Node]) -> str:
    return f"{name}({', '.join(map(as_written, arguments))})"
