"""Rows of the tables of docs/sql.md below a heading, and a pattern of each row's statements.

The table of statements is made from ``row`` blocks (``scripts/reference/statements.py``) and has no
patterns here.
"""

from __future__ import annotations

import re

from tests.support.documents.pages import ROOT

#: Heading -> for each row of its table, in order, a pattern that occurs in an example of the row.
PATTERNS = {
    "Functions": (
        r"\bdate_trunc\(", r"\bround\(", r"\bsplit_part\(", r"\bget_json_object\(",
        r"\barray_distinct\(", r"\bmd5\(", r"\bcidr_match\(", r"\bcoalesce\(",
    ),
    "Intervals": (
        r"\bts - \w+\.ts\b", r"\) - DATE '", r"\bts [+-] INTERVAL",
        r"coalesce\(INTERVAL|\* \w+ \+ INTERVAL", r"INTERVAL '\d+' \w+ [*/] \w",
        r"\bDIV INTERVAL.*-i|sign\(INTERVAL", r"sum\(ts - .*avg\(ts -",
        r"EXTRACT\(DAY FROM i\).*EXTRACT\(SECOND FROM i\)", r"CAST\(h\.ts - d\.ts AS STRING\)",
        r"CAST\(INTERVAL .* AS BIGINT\).*AS INTERVAL HOUR\)",
    ),
    "Variants": (
        r"\bparse_json\(", r"variant_get\([^,]+, '\$[^']*'\)|parse_json\(\w+\):\w",
        r"variant_get\([^,]+, '\$[^']*', '\w+'\)", r"try_variant_get\(|TRY_CAST\(parse_json",
        r"is_variant_null\(", r"to_json\(", r"LATERAL variant_explode(_outer)?\(",
    ),
    "Functions of your own": (r"\b(above|doubled|joined)\(", r"\bbelow\(", r"\b(known|inverse)\("),
    "Rows from arrays and maps": (
        r"LATERAL VIEW (OUTER )?explode\(", r"(CROSS JOIN|,) LATERAL explode\(",
        r"CROSS JOIN UNNEST\(", r"SELECT [^()]*explode\(", r"\bposexplode\(", r"\binline\(",
        r"\bvariant_explode\(", r"\bstack\(", r"\bUNPIVOT\b",
        r"explode_outer\(|VIEW OUTER|LEFT JOIN LATERAL",
    ),
    "Rolling conditions": (
        r"ts > now\(\) - INTERVAL", r"BETWEEN now\(\) - INTERVAL", r"ts <= now\(\)|< now\(\)",
        r"ts \+ INTERVAL '1' HOUR \* v < now\(\) AND NOT \(", r"current_date\(\)",
        r"date_trunc\('hour', now\(\)\)",
        r"date_trunc\('month', now\(\)\) - INTERVAL", r"timestampdiff\(\w+, [\w.]+, now\(\)\)",
        r"now\(\) - INTERVAL '[^']+' \w+ OR ",
    ),
    "Subqueries in expressions": (
        r"\(SELECT (max|min|avg|sum|count)\(", r"\(SELECT [^()]+ ORDER BY [^()]+ LIMIT 1\)",
        r"\(SELECT \w+\.\w+ FROM \w+( (AS )?\w+)? WHERE \w+\.\w+ = \w+\.\w+\)",
        r"WHERE (NOT )?EXISTS \(|(NOT )?IN \(SELECT", r"(OR|WHEN|SELECT [^()]+,) (NOT )?EXISTS \(",
        r"\(SELECT \w+(\.\w+)? FROM \w+( \w+)? WHERE \w+(\.\w+)? = [\d']|\(SELECT DISTINCT",
        r"HAVING [^()]*\([^()]*\)[^()]*\(SELECT",
    ),
    "Errors": (
        r"^SELCT |\bFORM\b", r"^SELECT a\.k b\.w|a\.k, FROM",
        r"ON \(a\.k = b\.k WHERE|\[0 FROM|\)\) AS c", r"'x$|`name |/\* all|CASE WHEN [^E]+ FROM",
        r"= = |=< | AND OR |\bIN 1|JOIN b a\.k", r"WHERE .* WHERE|ORDER BY .* GROUP BY|GROUP BY$",
        r"json_value\(|zeroifnull\(",
        r"^CREATE TABLE", r"INSERT OVERWRITE", r"^(UPDATE|DELETE|MERGE)",
        r"\(ts - ts\) \* |ts - ts \+ INTERVAL",
        r"::time\b|AS TIMESTAMP\(3\)\)", r"to_char\(\w+(\.\w+)?, 'YYYY", r"nosuch|unknown",
    ),
    "Words of other systems": (
        r"\bPIVOT \(", r"->>", r"\bjson_tuple\(", r"= ANY ?\((?!SELECT)|<> ALL ?\((?!SELECT)",
        r"= ANY \(SELECT|> ALL \(SELECT", r"AT TIME ZONE|timezone\(", r"\) OVERLAPS \(", r" !?~ '",
        r"\bARRAY\[", r"FLOOR\([\w.]+ TO ", r"date_bin\(|time_bucket\(", r"make_interval\(",
        r"EXTRACT\(EPOCH FROM", r"FILTER \(WHERE [^()]+\) OVER", r"sequence\([^()]*INTERVAL",
        r"(CROSS JOIN|,) (generate_series|range)\(",
        r"FROM (generate_series\(|\(VALUES)|WITH \w+ AS \(SELECT '?\d",
    ),
}  # fmt: skip

#: For each row of the table of other dialects, patterns of ``dialect: statement`` that runs, and of
#: one that is refused; empty: the row has none.
DIALECTS = (
    (r"postgres: .*::bigint|sqlite: .*CAST\(o\.x AS INT", r"postgres: .*CAST\(o\.x AS INT"),
    (r"duckdb: .*AS NUMERIC\)|trino: .*AS DECIMAL\)", r"postgres: .*AS NUMERIC\)"),
    (r"snowflake: .*AS FLOAT\)", r"::varchar\(3\)"),
    (r"postgres: .*d::text", r"postgres: .*x::text"),
    (r"duckdb: .* / 2", r"postgres: .* / 2"),
    (r"duckdb: .*\bavg\(", r"postgres: .*\bavg\("),
    (r"duckdb: .*\bmax_by\(", r"duckdb: .*\barg_max\(.*, 2\)"),
    (r"\bany_value\(", r"\bfirst\(.* ORDER BY"),
    (r"\bmedian\(|percentile_cont\(", r"median\(o\.m\)"),
    (r"percentile_disc\(.*ORDER BY o\.v\)", r"percentile_disc\(.*DESC\)"),
    (r"postgres: .*string_agg\(.* ORDER BY", r"mysql: .*group_concat\("),
    (r"postgres: .*to_char\(o\.ts, 'YYYY", r"postgres: .*to_char\(o\.ts, 'Day"),
    ("", r"-> 'a' ->> 'b'"),
    (r"\bregr_count\(|\bcorr\(", ""),
    (r"postgres: .*grouping\(.*ROLLUP", r"clickhouse: .*ROLLUP"),
    (r"snowflake: .*QUALIFY|postgres: .*DISTINCT ON", r"bigquery: .*DISTINCT ON"),
    (r"postgres: .*LIKE 'a\\_b'", r"tsql: .*LIKE '\["),
    (r"snowflake: .*date_trunc\('hour', o\.ts", r"date_trunc\('month', o\.d"),
    (r"postgres: .*EXTRACT\(DOW", r"trino: .*EXTRACT\(DOW"),
    (r"postgres: .*EXTRACT\(YEAR FROM age\(", r"postgres: SELECT o\.id, age\("),
    (r"snowflake: .*datediff\(", r"mysql: .*datediff\("),
    (r"snowflake: .*dateadd\(", ""),
    (r"postgres: .*now\(\)", r"mysql: .*now\(\)"),
    (r"postgres: .*greatest\(", r"snowflake: .*greatest\("),
    (r"postgres: .*round\(o\.m, 1", r"postgres: .*round\(o\.x"),
    (r"postgres: .*split_part\(o\.s, '-'", r"postgres: .*split_part\(o\.s, o\.s"),
    (r"postgres: .* ~ '\^a", r"postgres: .* ~ '\\w"),
    (r"snowflake: .*array_agg\(", r"postgres: .*array_agg\("),
    (r"EXCLUDE \(.*IS NOT NULL", r"\* RENAME"),
    (r"left\(o\.s, 2\).*right\(", r"left\(o\.s, -1"),
    (r"postgres: .*concat\(", r"oracle: .*concat\("),
    (r"postgres: .*lower\(", r"sqlite: .*upper\("),
    (r"postgres: .*\(o\.id, o\.v\) = \(", r"clickhouse: .*\(o\.id, o\.v\) = \("),
    (r"trino: .*UNNEST\(|duckdb: .*unnest\(", r"WITH ORDINALITY"),
    (r"postgres: .*ORDER BY o\.v DESC LIMIT", ""),
    (r"WHERE o\.d \+ INTERVAL", r"SELECT o\.id, o\.d \+ INTERVAL"),
    (r"postgres: .*p\.ts - o\.ts < ", r"snowflake: .*p\.ts - o\.ts"),
    (r"AT TIME ZONE 'Europe/", r"AT TIME ZONE 'CET'"),
    (r">= ALL \(SELECT", r"= ANY \(o\.xs"),
    (r"postgres: .*OVERLAPS", r"snowflake: .*OVERLAPS"),
    ("", r" \(\+\)|PREWHERE"),
)


def headings() -> set[str]:
    """Return the headings of docs/sql.md with a table below."""
    text = (ROOT / "docs" / "sql.md").read_text("utf-8")
    parts = re.split(r"^#{2,3} (?=[A-Z])", text, flags=re.M)
    return {part.split("\n", 1)[0] for part in parts[1:] if "\n|---" in part}


def rows_below(heading: str) -> list[str]:
    """Return the rows of the table below ``heading`` of docs/sql.md, as text."""
    text = (ROOT / "docs" / "sql.md").read_text("utf-8")
    section = re.split(r"^#{2,3} ", text.split(f"### {heading}\n", 1)[1], flags=re.M)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return lines[2:]
