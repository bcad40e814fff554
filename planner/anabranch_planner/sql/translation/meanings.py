"""SQL expressions that have the same spelling in several dialects, but different meanings.

Each meaning is compared with Spark's. A dialect that is not in :data:`MEANINGS` has
:data:`UNKNOWN`: every expression that varies between dialects is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sqlglot.expressions import DType

from anabranch_contract.queries.types import FLOATING, INTEGRAL, NUMERIC, TypeKind


class Division(StrEnum):
    """Meaning of ``a / b`` in an SQL dialect.

    ``spark``: as in Spark. ``double``: a division of doubles for all operands. ``varying``: as in
    Spark for doubles; for integers and decimals the result has another precision or scale.
    """

    SPARK = "spark"
    DOUBLE = "double"
    VARYING = "varying"


@dataclass(frozen=True, slots=True)
class Like:
    """Meaning of LIKE in an SQL dialect.

    Attributes:
        escape: whether a backslash escapes even without an ESCAPE clause; None: not known.
        classes: whether ``[a-z]`` is a class of characters.
        ignores_case: whether the case of ASCII letters is ignored.
    """

    escape: bool | None = False
    classes: bool = False
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Meanings of aggregates and post-join clauses in one SQL dialect.

    Attributes:
        mean: whether ``avg`` returns a double for all types of numbers.
        sample: whether ``variance`` and ``stddev`` are for a sample, as in Spark.
        by_skips_nulls: whether ``max_by(x, y)`` ignores rows with NULL in ``x``; None: not known.
        continuous: types of values whose continuous percentiles are doubles, as in Spark.
        quantile_is_discrete: whether ``quantile(x, p)`` is always one of the values.
        approximate_of_type: whether an approximate percentile has the type of its argument.
        lists: whether ``string_agg`` has no maximum length, and is NULL if there are no texts.
        list_separator: default separator in such a list; None: no default, or not known.
        distinct_on: whether ``DISTINCT ON`` keeps the first row of each group by ORDER BY.
        pairs: whether correlations and covariances are computed with doubles, as in Spark.
    """

    mean: bool | None = None
    sample: bool = False
    by_skips_nulls: bool | None = None
    continuous: frozenset[TypeKind] = frozenset()
    quantile_is_discrete: bool = False
    approximate_of_type: bool = False
    lists: bool = False
    list_separator: str | None = None
    distinct_on: bool = False
    pairs: bool = False


@dataclass(frozen=True, slots=True)
class Meanings:
    """The differences between expressions in one SQL dialect and in Spark's.

    Attributes:
        truncates: whether ``CAST(1.5 AS INT)`` drops the fraction, as in Spark.
        strict_text: whether casting a non-numeric text to a number fails, as in Spark.
        decimal: precision and scale of a bare ``DECIMAL``; None: not fixed, or not known.
        decimal_rounds: whether a cast to a decimal rounds halves away from zero, as in Spark.
        types: type names with another meaning than in Spark; None: no equivalent type.
        dates_as_text: whether a cast of a date to a text returns the form ``2024-01-31``.
        division: the meaning of ``/``.
        integer_modulo: whether ``%`` casts its operands to integers first.
        like: the meaning of LIKE.
        concat_skips_nulls: whether ``concat`` treats NULL as an empty text.
        empty_is_null: whether the empty text is NULL.
        length_of_characters: whether ``length`` counts characters.
        unicode_case: whether ``lower`` and ``upper`` change letters beyond ASCII.
        trims_spaces: whether ``trim`` removes spaces, and nothing else.
        double_literals: whether ``1.5`` is a double instead of a decimal.
        rows_of_nulls: whether NULLs inside compared rows are equal, as in Spark.
        date_plus_days: whether a date plus an interval of days is a date, as in Spark.
        times_apart: whether the difference of two timestamps is an interval, as in Spark.
        outer_nulls: whether a left row without a match has NULL in the right side's columns.
        aggregates: the meanings of aggregates.
    """

    truncates: bool = False
    strict_text: bool = False
    decimal: tuple[int, int] | None = None
    decimal_rounds: bool = False
    types: Mapping[DType, DType | None] = field(default_factory=dict)
    dates_as_text: bool = False
    division: Division = Division.VARYING
    integer_modulo: bool = True
    like: Like = Like(escape=None, classes=True, ignores_case=True)
    concat_skips_nulls: bool | None = None
    empty_is_null: bool = True
    length_of_characters: bool = False
    unicode_case: bool = False
    trims_spaces: bool = False
    double_literals: bool | None = None
    rows_of_nulls: bool | None = None
    date_plus_days: bool | None = None
    times_apart: bool = False
    outer_nulls: bool = False
    aggregates: Aggregates = field(default_factory=Aggregates)


#: Meanings in a dialect that :data:`MEANINGS` lacks: expressions that vary are rejected.
UNKNOWN = Meanings()

#: Meanings of aggregates that most dialects share.
_SHARED = Aggregates(sample=True, continuous=frozenset({TypeKind.DOUBLE}))
_SPARK = Meanings(
    truncates=True,
    strict_text=True,
    decimal=(10, 0),
    decimal_rounds=True,
    types={},
    dates_as_text=True,
    division=Division.SPARK,
    integer_modulo=False,
    like=Like(escape=True),
    concat_skips_nulls=False,
    empty_is_null=False,
    length_of_characters=True,
    unicode_case=True,
    trims_spaces=True,
    double_literals=False,
    rows_of_nulls=True,
    date_plus_days=True,
    times_apart=True,
    outer_nulls=True,
    aggregates=_SHARED,
)
#: Meanings of expressions that most dialects share.
_USUAL = replace(
    _SPARK,
    truncates=False,
    strict_text=False,
    division=Division.VARYING,
    like=Like(),
    dates_as_text=False,
    rows_of_nulls=False,
    date_plus_days=None,
    times_apart=False,
)
_POSTGRES = replace(
    _USUAL,
    strict_text=True,
    decimal=None,
    dates_as_text=True,
    like=Like(escape=True),
    concat_skips_nulls=True,
    date_plus_days=False,
    times_apart=True,
    aggregates=replace(_SHARED, continuous=NUMERIC, lists=True, distinct_on=True, pairs=True),
)
_TRINO = replace(
    _USUAL,
    decimal=(38, 0),
    trims_spaces=False,
    times_apart=True,
    aggregates=replace(
        _SHARED, by_skips_nulls=False, approximate_of_type=True, lists=True, pairs=True
    ),
)

MEANINGS: dict[str, Meanings] = {
    "duckdb": replace(
        _USUAL,
        decimal=(18, 3),
        dates_as_text=True,
        division=Division.DOUBLE,
        concat_skips_nulls=True,
        trims_spaces=False,
        rows_of_nulls=True,
        date_plus_days=False,
        times_apart=True,
        aggregates=Aggregates(
            mean=True, sample=True, by_skips_nulls=True, continuous=INTEGRAL | FLOATING,
            quantile_is_discrete=True, approximate_of_type=True, lists=True, list_separator=",",
            distinct_on=True, pairs=True,
        ),
    ),
    "postgres": _POSTGRES,
    "redshift": replace(
        _POSTGRES,
        decimal=(18, 0),
        decimal_rounds=False,
        concat_skips_nulls=None,
        aggregates=replace(_SHARED, lists=True, list_separator=""),
    ),
    "sqlite": replace(
        _USUAL,
        truncates=True,
        decimal=None,
        decimal_rounds=False,
        types={DType.DATE: None, DType.TIMESTAMP: None, DType.BOOLEAN: None, DType.DECIMAL: None},
        integer_modulo=True,
        like=Like(ignores_case=True),
        concat_skips_nulls=True,
        unicode_case=False,
        double_literals=True,
        aggregates=replace(_SHARED, mean=True, lists=True, list_separator=","),
    ),
    "mysql": replace(
        _USUAL, like=Like(escape=True), length_of_characters=False, date_plus_days=True
    ),
    "oracle": replace(
        _USUAL,
        decimal=None,
        types={DType.FLOAT: None, DType.DATE: None},
        concat_skips_nulls=None,
        empty_is_null=True,
        aggregates=replace(_SHARED, sample=False),
    ),
    "clickhouse": replace(
        _USUAL,
        truncates=True,
        decimal=None,
        decimal_rounds=False,
        like=Like(escape=True),
        double_literals=True,
        length_of_characters=False,
        unicode_case=False,
        outer_nulls=False,
        division=Division.VARYING,
        rows_of_nulls=None,
        aggregates=replace(_SHARED, sample=False, by_skips_nulls=True),
    ),
    "snowflake": replace(
        _USUAL, decimal=(38, 0), types={DType.FLOAT: DType.DOUBLE}, double_literals=False,
        aggregates=replace(_SHARED, by_skips_nulls=False, pairs=True, list_separator=""),
    ),
    "bigquery": replace(
        _USUAL,
        decimal=(38, 9),
        types={DType.FLOAT: DType.DOUBLE, DType.INT: DType.BIGINT},
        like=Like(escape=True),
        trims_spaces=False,
        double_literals=True,
        rows_of_nulls=False,
        times_apart=True,
        aggregates=replace(
            _SHARED, by_skips_nulls=False, lists=True, list_separator=",", pairs=True
        ),
    ),
    "tsql": replace(
        _USUAL,
        truncates=True,
        decimal=(18, 0),
        types={DType.FLOAT: DType.DOUBLE, DType.TINYINT: None},
        like=Like(classes=True),
        concat_skips_nulls=True,
        length_of_characters=False,
        aggregates=replace(_SHARED, sample=False, lists=True),
    ),
    "trino": _TRINO,
    "presto": _TRINO,
}  # fmt: skip
