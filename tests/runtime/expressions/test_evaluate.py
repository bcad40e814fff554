"""Compare the evaluation of expressions with Spark and with DuckDB, and in single cases."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal, substitute
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import (
    INTERVAL_UNITS,
    INTERVALS,
    DataType,
    TypeKind,
    parse_type,
)
from anabranch_planner.binding.typecheck import typed
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.syntax import parse_expression
from anabranch_runtime.columns.arrow_types import arrow_type, field_type, spark_type, typed_field
from anabranch_runtime.errors import ArrowTypeError, ExpressionError
from anabranch_runtime.expressions.evaluate import evaluate, filter_mask
from tests.support.cases.spark_text import to_spark_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAN, _INF = math.nan, math.inf
_TABLE = pa.table(
    {
        "t": pa.array([1, -128, None, 127, 0, 5], pa.int8()),
        "i": pa.array([7, -7, 0, None, 2**31 - 1, -(2**31)], pa.int32()),
        "j": pa.array([3, 3, 1, 2, None, -1], pa.int32()),
        "b": pa.array([2**63 - 1, -(2**63), 5, 10**15, None, 0], pa.int64()),
        "f": pa.array([1.5, -0.0, _NAN, None, 0.1, 3.4e38], pa.float32()),
        "x": pa.array([0.0, -0.0, _NAN, _INF, None, -1e7], pa.float64()),
        "y": pa.array([-0.0, 1.5, _NAN, 2.5e-5, 1e300, None], pa.float64()),
        "d": pa.array(map(Decimal, ["1.25", "-1.25", "0.00", "99999.99", "2.50", "7.00"]),
                      pa.decimal128(12, 2)),
        "e": pa.array([Decimal("0.3333"), None, *map(Decimal, ["2.0000", "-7.1255", "3", "0.5"])],
                      pa.decimal128(20, 4)),
        "z": pa.array([Decimal("1E-10"), Decimal(0), None, *map(Decimal, ["-1.5", "1E3", "2"])],
                      pa.decimal128(38, 18)),
        "s": pa.array(["abc", "", None, "Ünï_Çode%", " a b ", "100%\nx"]),
        "u": pa.array(["abc", "ab", "b", None, "ΑΣ", "straße"]),
        "p": pa.array([True, False, None, True, False, None]),
        "q": pa.array([True, True, True, None, False, False]),
        "w": pa.array([date(2020, 2, 29), date(1969, 12, 31), None, date(1, 1, 1),
                       date(9999, 12, 31), date(1582, 10, 15)], pa.date32()),
        "m": pa.array([0, -1, None, 1_600_000_000_123_456, 1_000_000, -86_400_000_000],
                      pa.timestamp("us", "UTC")),
        "n": pa.array([0, 1_500_000, -62_135_596_800_000_000, None, 1_000_000, 120],
                      pa.timestamp("us")),
        "h": pa.array([b"", b"\x00\xff", None, b"abc", b"ab", b"\x80"], pa.binary()),
    }
)  # fmt: skip
_SCOPE = Scope.of_stream(
    "r",
    Stream(StreamName("r"), tuple((f.name, spark_type(f.type)) for f in _TABLE.schema)),
)

#: Expressions that both evaluate over the whole table.
_EXPRESSIONS = """
i = j | i <> j | i < j | i <= b | t > j | t >= 0 | i <=> j | b <=> NULL | x <=> y
x = y | x < y | x <= y | x > y | x >= y | x <> y | f = x | f > y | f < 2 | x = i | x IN (0.0D, 1.5D)
d = e | d < e | d >= 1.25 | d = i | z > e | z = 0 | d IN (1.25, 7) | d <=> e | e = 2.0D
s = u | s < u | s >= 'abc' | s <> '' | h < X'61' | h = X'' | p < q | p = q | p >= q | p <=> q
w < DATE '2000-01-01' | m = n | m > n | m >= TIMESTAMP '1970-01-01 00:00:00'
p AND q | p OR q | NOT p | p AND NULL | p OR NULL | NOT (p AND q) | (i > 0) OR (j > 0) AND p
i IN (7, 0) | i IN (7, NULL) | i NOT IN (7, NULL) | NULL IN (1) | s IN ('abc', '') | p IN (TRUE)
x IN (CAST('NaN' AS DOUBLE)) | i IN (j, 7) | w IN (DATE '2020-02-29') | i BETWEEN j AND 10
s IS NULL | s IS NOT NULL | p IS TRUE | p IS NOT FALSE
s LIKE 'a%' | s LIKE '%c' | s LIKE '%b%' | s LIKE 'a_c' | s LIKE '100\\%%' | s LIKE '%\\_%'
s LIKE '' | s LIKE '%' | s LIKE '_' | s NOT LIKE '%x' | s LIKE '100%x' | s LIKE '___\\__ode\\%'
s LIKE '%.%' | s LIKE 'a%c' | u LIKE '__' | u LIKE 'stra_e'
b / 2 | i / CAST(3 AS INT) | d + e | d - e | d * e | e * e | d / 3 | d / CAST(0.7 AS DECIMAL(3,1))
z + d | z * e | z * z | z - e | d % 2 | e % 0.3 | -d | abs(e) | z / 7 | z % 0.7 | d + i | d * j
x + y | x - y | x * y | x / 3 | y % 0.7 | f + f | f * f | f / 2 | f + i | -x | abs(x) | -f | x * d
i % 3 | t % CAST(7 AS TINYINT) | b % -1 | i % CAST(-3 AS INT) | CAST(i AS BIGINT) + j | b * 0
i - 0 | abs(j) | -j | CAST(i AS BIGINT) * 10 | t + j
CASE WHEN j <> 1 THEN 6 / (j - 1) END | CASE WHEN i > 0 THEN 'p' WHEN i < 0 THEN 'n' ELSE s END
CASE j WHEN 3 THEN 'three' WHEN 1 THEN u END | CASE WHEN p THEN i ELSE b END | IF(q, d, e)
coalesce(i, j, 0) | coalesce(s, u) | coalesce(d, e, 0) | nvl(x, y)
i <> 0 AND 1 / i > 0 | i = 0 OR 1 / i > 0 | coalesce(i IS NULL, 1 / 0 > 0) | q AND NULL > 1
lower(s) | upper(s) | lower(u) | upper(u) | length(s) | length(u) | trim(s) | concat(s, u, 'x')
s || u | substring(s, 2, 2) | substring(s, -2, 1) | substring(s, 0, 2) | substring(s, 2)
substring(s, -9, 8) | substring(s, 2, -1) | substring(s, 9, 1) | substring(s, j, 2)
year(w) | month(w) | day(w) | year(m) | month(m) | day(m) | hour(m) | minute(m) | second(m)
year(n) | hour(n) | second(n)
m + INTERVAL 1 DAY | m - INTERVAL '90' MINUTE | n + INTERVAL 2 HOUR | m - n > INTERVAL 1 HOUR
CAST(i AS STRING) | CAST(b AS STRING) | CAST(p AS STRING) | CAST(d AS STRING) | CAST(z AS STRING)
CAST(x AS STRING) | CAST(y AS STRING) | CAST(f AS STRING) | CAST(w AS STRING) | CAST(m AS STRING)
CAST(n AS STRING) | CAST(i AS DOUBLE) | CAST(b AS DOUBLE) | CAST(b AS FLOAT) | CAST(i AS FLOAT)
CAST(d AS INT) | CAST(e AS BIGINT) | CAST(d AS DOUBLE) | CAST(z AS DOUBLE) | CAST(e AS FLOAT)
CAST(e AS DECIMAL(10,1)) | CAST(e AS DECIMAL(20,3)) | CAST(i AS DECIMAL(12,2)) | CAST(p AS INT)
CAST(i AS BOOLEAN) | CAST(x AS BOOLEAN) | CAST(d AS BOOLEAN) | CAST(p AS DOUBLE)
CAST(p AS DECIMAL(3,1)) | CAST(w AS TIMESTAMP) | CAST(m AS DATE) | CAST(n AS TIMESTAMP)
CAST(m AS TIMESTAMP_NTZ) | CAST(n AS DATE) | CAST(s AS BINARY) | CAST(f AS DOUBLE)
CAST(y AS FLOAT) | CAST(NULL AS INT) | CAST(w AS TIMESTAMP_NTZ)
s ILIKE 'A%' | u ILIKE '%B_' | s NOT ILIKE '%X' | s LIKE '100#%x' ESCAPE '#'
s LIKE 'a\\_c' ESCAPE '#' | s LIKE '##%' ESCAPE '#' | s ILIKE 'A/_%' ESCAPE '/' | isnull(s)
isnotnull(i) | nullif(i, 7) | nullif(s, u) | nullif(d, e) | nvl2(i, s, u) | nvl2(s, i, b)
mod(i, 3) | mod(d, 2) | left(s, 2) | left(s, j) | left(u, 0) | left(s, -1) | right(s, 2)
right(u, 1) | right(s, 0) | right(s, -3) | right(s, 99) | quarter(w) | quarter(m)
startswith(s, 'a') | endswith(s, 'c') | contains(s, 'b') | contains(s, '%') | contains(u, '')
endswith(s, '_') | EXTRACT(YEAR FROM w) | EXTRACT(month FROM m) | EXTRACT(DAY FROM n)
EXTRACT(HOUR FROM m) | EXTRACT(MINUTE FROM n) | EXTRACT(QUARTER FROM w) | date_part('year', m)
date_part('MONTHS', w) | timestamp_seconds(i) | timestamp_seconds(t) | timestamp_millis(j)
timestamp_micros(b) | timestamp_micros(t) | timestamp_millis(unix_millis(m)) | unix_seconds(m)
unix_millis(m) | unix_micros(m) | unix_seconds(CAST(n AS TIMESTAMP)) | unix_millis(NULL)
greatest(i, j) | greatest(x, y) | least(x, y, f) | greatest(s, u) | least(d, e) | least(w, w)
greatest(i, NULL, b) | least(t, i, b, d) | greatest(m, n) | least(m, TIMESTAMP '2000-01-01')
concat_ws('-', s, u) | concat_ws('', s, 'x') | concat_ws('é, ', s, u, s) | concat_ws('x')
round(i) | round(b, 2) | round(d) | round(d, 1) | round(e, 9) | round(z) | round(z, 3) | round(x)
round(x, 2) | round(y, 1) | round(y, 10) | round(f) | round(f, 3) | round(x / 3, 4) | round(2.5)
round(-2.5D) | round(1.005D, 2) | round(0.285D, 2) | round(1e300D) | to_date(m) | to_date(w)
to_date(n) | unix_micros(CAST(n AS TIMESTAMP)) | timestamp_seconds(NULL)
unix_seconds(m) - unix_seconds(m)
date_trunc('year', m) | date_trunc('QUARTER', m) | date_trunc('mon', w) | date_trunc('week', m)
date_trunc('day', n) | date_trunc('hour', m) | date_trunc('MINUTE', m) | date_trunc('second', m)
date_trunc('millisecond', m) | date_trunc('microsecond', m) | trunc(w, 'YEAR') | trunc(w, 'week')
trunc(m, 'MM') | trunc(n, 'quarter') | last_day(w) | last_day(m) | add_months(w, 1)
add_months(w, -1) | add_months(w, t) | date_add(w, 1) | date_add(m, t) | date_sub(w, 30)
date_sub(w, t) | datediff(w, m) | datediff(m, DATE '2000-01-01') | date_diff(w, w)
dayofweek(w) | weekday(w) | dayofyear(w) | weekofyear(w) | dayofweek(m) | weekofyear(m)
weekofyear(DATE '2021-01-03') | weekofyear(DATE '2020-12-31') | dayname(w) | monthname(m)
EXTRACT(WEEK FROM w) | EXTRACT(DOW FROM w) | EXTRACT(DOY FROM m) | EXTRACT(DAYOFWEEK_ISO FROM w)
EXTRACT(SECOND FROM m) | EXTRACT(SECOND FROM n) | date_part('week', m)
timestampdiff(SECOND, m, n) | timestampdiff(DAY, n, m) | timestampdiff(MONTH, m, n)
timestampdiff(YEAR, n, m) | timestampdiff(QUARTER, w, m) | timestampdiff(WEEK, w, m)
timestampdiff(MICROSECOND, m, n) | timestampdiff(MONTH, DATE '2020-01-31', w)
date_diff(HOUR, m, n) | datediff(MINUTE, m, n) | timestampadd(HOUR, 5, m) | timestampadd(DAY, j, m)
timestampadd(MONTH, j, m) | timestampadd(YEAR, -1, w) | timestampadd(WEEK, t, n)
timestampadd(QUARTER, 1, TIMESTAMP '2020-11-30 12:00:00') | dateadd(SECOND, j, m)
date_add(MONTH, 1, w) | timestampadd(MILLISECOND, b, NULL) | months_between(m, n)
months_between(w, m) | months_between(w, DATE '2020-01-31') | make_date(2020, j + 2, 28)
date_from_unix_date(i) | date_from_unix_date(j) | unix_date(w)
date_format(m, 'yyyy-MM-dd HH:mm:ss.SSS') | date_format(w, 'dd.MM.yy')
date_format(m, 'EEEE, MMM d')
date_format(m, 'E a hh:mm') | date_format(m, "yyyy'T'H:m:s.SSSSSS") | date_format(n, 'QQQ y D')
date_format(w, 'MMMM QQQQ DDD') | date_format(m, 'K k h') | date_format(m, 'Q qq MM L')
date_format(m, 'y-M-d') | date_format(m, '') | date_format(m, '\\'\\'')
date_format(m, 'S SSSSSSSSS')
from_unixtime(i) | from_unixtime(j, 'yyyy/MM/dd') | unix_timestamp(m) | unix_timestamp(w)
to_timestamp(m) | to_timestamp(w) | to_date(CAST(w AS STRING)) | to_timestamp(CAST(m AS STRING))
to_timestamp(date_format(m, 'dd/MM/yyyy HH.mm'), 'dd/MM/yyyy HH.mm')
to_timestamp(date_format(m, 'yyyyMMddHHmmss'), 'yyyyMMddHHmmss')
to_timestamp(date_format(m, 'd MMM yyyy hh:mm:ss a'), 'd MMM yyyy hh:mm:ss a')
to_date('03/04/2020', 'dd/MM/yyyy') | to_date(date_format(w, 'yyyyMMdd'), 'yyyyMMdd')
to_timestamp('12:30', 'HH:mm') | to_timestamp('2020-01-01 1.5', 'yyyy-MM-dd H.SSS')
to_timestamp('7', 'M') | to_timestamp('20', 'yy') | unix_timestamp('2020-01-01', 'yyyy-MM-dd')
floor(x / 3 * 0) | floor(d) | floor(e) | floor(i) | ceil(y / 1e300) | ceil(d) | ceiling(z)
floor(z) | ceil(b)
floor(-1.5) | ceil(-0.2D) | sqrt(x) | sqrt(y) | sqrt(i) | sign(x) | sign(d)
signum(i) | power(2, 10) | power(x, 0) | pow(x, 0.5) | power(y, 2) | power(1, x) | power(-1, x)
exp(0) | exp(x) | ln(x) | ln(y) | log10(1000) | log2(8) | log(2, 8) | log(x, y) | log(x)
log1p(-1) | log1p(x) | expm1(x) | isnan(x) | isnan(i) | pmod(i, 3) | pmod(-7, 3) | pmod(t, t + 300)
pmod(x, 3) | pmod(-7.5D, 2.0D) | pmod(b, -3) | i DIV 2 | b DIV 3 | -7 DIV 2 | d DIV 2 | d DIV 0.3
e DIV CAST(0.7 AS DECIMAL(3,1)) | pi() | e() | try_divide(i, j) | try_divide(x, y)
degrees(x) | atan2(x, y) | sin(0) | cos(0) | tan(0) | atan(x) | radians(180)
replace(s, 'b', 'XY') | replace(s, 'b') | replace(s, '', 'x') | replace(s, u, 'q')
replace(i, 7, 8)
split_part(s, 'b', 1) | split_part(s, 'b', 2) | split_part(s, 'b', 9) | split_part(s, ' ', -1)
split_part(s, '', 1) | split_part(s, u, 1) | split_part(u, 'a', -2) | lpad(s, 5) | lpad(s, 5, '*')
lpad(s, 2, 'ab') | lpad(s, 7, 'ab') | lpad(s, 7, '') | lpad(s, -1, 'x') | rpad(s, 5, 'é')
rpad(s, 7, 'ab') | rpad(s, j, 'xy') | lpad(i, 12, '0') | ltrim(s) | rtrim(s) | btrim(s)
btrim(s, 'a ') | btrim(s, '') | trim(LEADING 'a' FROM s) | trim(TRAILING FROM s)
trim(BOTH 'ac' FROM u) | trim('b' FROM u) | ltrim(u) | initcap(s) | initcap(u) | initcap('a bC  dé')
initcap('über-groß o''neill x') | instr(s, 'b') | instr(s, '') | instr(u, 'ß') | instr(s, u)
locate('b', s) | locate('b', s, 2) | locate('b', s, 0) | locate('', s) | locate('', s, 9)
locate('b', s, -1) | position('b', u) | position('b' IN u) | reverse(s) | reverse(u)
repeat(s, 2) | repeat(s, 0) | repeat(u, j) | translate(s, 'abc', 'xy') | translate(u, 'ß', 'zz')
translate(s, 'aab', '123') | ascii(s) | ascii(u) | char(65) | chr(i) | char(256) | char(-1)
char(233) | substring_index(s, 'b', 1) | substring_index('a.b.c.d', '.', 2)
substring_index('a.b.c.d', '.', -2) | substring_index('a.b.c.d', '.', 0) | substring_index(s, '', 1)
substring_index('a..b..c', '..', -1) | substring_index('aaaa', 'aa', -1)
substring_index('aaaa', 'aa', 2)
substring_index(s, 'x', 9) | substring_index(s, 'x', -9) | md5(s) | md5(u) | sha1(s) | sha(h)
sha2(s, 256) | sha2(s, 0) | sha2(u, 512) | sha2(u, 224) | sha2(u, 384) | sha2(u, 1) | crc32(s)
crc32(h) | base64(s) | base64(h)
s RLIKE '^a' | s RLIKE 'c$' | s RLIKE r'\\d+' | s RLIKE 'b|%' | u RLIKE '[a-c]{2}' | s RLIKE ''
rlike(s, '(?i)ABC') | regexp_like(u, 'ß') | s RLIKE '.x' | s RLIKE '(?s).x' | s NOT RLIKE 'a'
s RLIKE r'\\s' | s RLIKE r'\\S' | s RLIKE r'[\\s%]' | s RLIKE r'\\p{Lu}' | u RLIKE r'\\u00df'
'a\\n' RLIKE 'a$' | 'a\\r\\n' RLIKE '^a$' | 'a\\nb' RLIKE 'a$' | concat('a', s) RLIKE 'a.'
regexp_extract(s, '(a)(b)') | regexp_extract(s, '(a)(b)', 2) | regexp_extract(s, 'b.*', 0)
regexp_extract(s, '(x)?(b)', 1) | regexp_extract(s, 'a(?:b)(c)', 1) | regexp_extract(u, '[(](x)', 1)
regexp_extract('a@b.org', '([^@]+)@(?<host>.+)', 2) | regexp_extract('100-200', r'(\\d+)-(\\d+)', 1)
regexp_replace(s, 'b', 'X') | regexp_replace(s, '(b)(c)', '$2$1') | regexp_replace(s, 'x*', '')
regexp_replace(s, '[^a-z]', '') | regexp_replace(u, 'ß', r'\\$') | regexp_replace(s, ' +', r'\\\\')
regexp_count(s, 'b') | regexp_count(s, '[a-c]') | regexp_count('aaaa', 'aa')
get_json_object('{"a": {"b": [1, "x", null, true, {"c": 1.5}]}}', '$.a.b[1]')
get_json_object('{"a": {"b": [1, "x", null, true, {"c": 1.5}]}}', '$.a.b')
get_json_object('{"a": 1}', '$.b') | get_json_object('{"a": null}', '$.a')
get_json_object(s, '$.a')
get_json_object('{"a b": "é\\n"}', '$[''a b'']') | get_json_object('[1,2]', '$[1]')
get_json_object('{"a": {"x":"q\\"z"}}', '$.a') | get_json_object('{"a": 1e3}', '$.a')
get_json_object('{"a": 10000000000000000000000}', '$.a') | get_json_object('{"a"', '$.a')
get_json_object('{"a": true}', '$') | get_json_object('"x"', '$')
get_json_object('{"a":1}{', '$.a')
TRY_CAST(s AS INT) | TRY_CAST(u AS DATE) | TRY_CAST(b AS INT) | TRY_CAST(x AS INT)
TRY_CAST(d AS INT)
TRY_CAST('12' AS INT) | TRY_CAST('x' AS DATE) | TRY_CAST(i AS TINYINT) | TRY_CAST(x AS STRING)
TRY_CAST(e AS DECIMAL(3,2)) | s IS DISTINCT FROM u | i IS NOT DISTINCT FROM j
i IS DISTINCT FROM NULL
concat(i, '-', d) | concat_ws('/', s, i, w) | s || i
i & j | i & 3 | t | 5 | b ^ 255 | ~i | ~t | shiftleft(i, 3) | shiftleft(b, 33) | shiftright(i, 1)
shiftright(b, 65) | shiftleft(t, j) | bround(x, 1) | bround(d, 1) | bround(2.5D) | bround(-2.5D)
bround(3.5) | bround(y) | bround(i) | rint(x) | rint(2.5D) | hypot(3, 4) | hex(i) | hex(b) | hex(s)
hex(h) | hex(u) | unhex('4F4') | unhex(hex(s)) | octet_length(s) | octet_length(h) | bit_length(u)
space(3) | concat('a', space(j), 'b') | levenshtein(s, u) | levenshtein('kitten', 'sitting')
format_number(d, 1) | format_number(b, 0) | format_number(y, 3) | format_number(12332.123456D, 4)
format_number(i, 2) | format_number(x, 1) | url_encode(s) | url_encode('a~b*c-d_e.f g/é')
url_decode(url_encode(s)) | url_decode('a+b%20c') | next_day(w, 'MON') | next_day(w, 'Friday')
next_day(m, 'su') | from_utc_timestamp(m, 'Europe/Berlin') | to_utc_timestamp(m, 'Asia/Tokyo')
from_utc_timestamp(m, '+05:30') | to_utc_timestamp(m, 'UTC') | to_utc_timestamp(m, 'GMT-3')
from_utc_timestamp(TIMESTAMP '2024-03-31 01:00:00', 'Europe/Berlin')
to_utc_timestamp(TIMESTAMP '2024-03-31 02:30:00', 'Europe/Berlin')
to_utc_timestamp(TIMESTAMP '2024-10-27 02:30:00', 'Europe/Berlin')
to_utc_timestamp(TIMESTAMP '2100-07-01 02:30:00', 'America/New_York')
try_to_timestamp(s) | try_to_timestamp('2020-13-01', 'yyyy-MM-dd') | try_add(i, 1) | try_add(b, 1)
try_subtract(i, j) | try_multiply(b, 10) | try_divide(i, j - 3) | try_divide(d, 0) | try_add(x, y)
split(s, 'b')[0] | element_at(split(s, ' '), -1)
try_element_at(split(s, 'b'), 2) | try_element_at(split(u, '[ab]'), -3) | size(split(s, 'b'))
size(split(u, 'a|ß')) | split('a1b22c', r'\\d+')[2] | size(split(NULL, 'a')) | split(s, r'\\|')[0]
decode(i, 7, 'seven', -7, 'minus', 'other') | decode(j, 3, d, e)
width_bucket(x, 0, 10, 5) | width_bucket(5.3D, 0.2D, 10.6D, 5) | width_bucket(d, 10, -2, 4)
width_bucket(1, 1, 1, 3) | width_bucket(y, -1, 1, 0) | hash(i) | hash(b) | hash(s) | hash(u, i)
hash(t, j, s) | hash(x) | hash(y, f) | hash(d, e) | hash(z) | hash(w, m, n) | hash(p, h)
hash(NULL)
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'HOST')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'PATH')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'QUERY')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'QUERY', 'x')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'REF')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'PROTOCOL')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'FILE')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'AUTHORITY')
parse_url('http://me@spark.apache.org:80/a/b?query=1&x=2#Ref', 'USERINFO')
parse_url('/a/b', 'HOST') | parse_url('/a/b?x', 'FILE') | parse_url('https://a_b.c/d', 'HOST')
parse_url('https://a.b', 'PATH') | parse_url('https://a.b?x=', 'QUERY', 'x')
parse_url('a.b/c', 'PATH')
parse_url('mailto:x@y.z', 'PROTOCOL') | parse_url('https://a.b/c', 'QUERY', 'x')
parse_url('', 'PATH')
bin(b) | bin(i) | bin(t) | conv(s, 16, 10) | conv(b, 10, 16) | conv(i, 10, -2) | conv(u, 36, -10)
conv(i, j, 10) | conv('-ff', 16, 10) | conv('zz', 16, 10)
conv('-', 10, 10) | conv('-0', 10, -10) | conv('-9223372036854775809', 10, -10)
conv(' 12x', 10, 7) | conv('', 10, 2) | conv('-18446744073709551615', 10, 16)
soundex(s) | soundex(u) | soundex('Tymczak') | soundex('Ashcraft') | soundex('honeyman')
soundex('a1b')
xxhash64(t) | xxhash64(i) | xxhash64(b) | xxhash64(f) | xxhash64(x) | xxhash64(d) | xxhash64(z)
xxhash64(s) | xxhash64(p) | xxhash64(w) | xxhash64(m) | xxhash64(n) | xxhash64(h)
xxhash64(i, s, NULL, x, d, z)
hash(s, CAST(j AS TINYINT)) | xxhash64(s, CAST(j AS TINYINT)) | xxhash64(NULL)
xxhash64(repeat(s, 9))
format_string('%s-%d', s, i) | printf('a %% %n%s', u)
format_string('%5s|%-5s|%.2s|%6.1s', s, u, s, u)
format_string('%05d|%-9d|%+d|%,d|% d', i, i, i, b, t) | format_string('%x|%08x', i, t)
format_string('%x', b)
format_string('%.2f|%12.3f|%-12.1f|%012.2f|%,.1f|%+.0f|% f', x, y, x, y, y, x, y)
format_string('%.3f', f) | format_string('%2$s %1$s %s', i, s) | format_string('plain')
format_string('%s', NULL) | format_string('%s %s %s %s', p, d, x, f)
format_string('%8.2f|%-8.2f|%08d', CAST(NULL AS DOUBLE), x, j) | format_string(NULL, i)
overlay(s PLACING 'xyz' FROM 2 FOR 1) | overlay(s PLACING u FROM 3)
overlay(s PLACING u FROM i FOR j) | overlay(s, u, j, i) | overlay(s, u, i) | overlay(s, 'ab', -2)
overlay(s, 'ab', 0, 3) | overlay(s, 'x', -9, 2)
substr(s FROM 2 FOR 3) | substring(s FROM 2) | substring(s FROM j FOR 2) | substring(s FROM -3)
make_timestamp(2024, 1, 2, 3, 4, 5.678901) | make_timestamp(2024, 1, 2, 3, 4, 60)
make_timestamp(2020, 2, 29, 23, 59, d * 0) | make_timestamp(2024, 3, 31, 2, 30, 0, 'Europe/Berlin')
make_timestamp(2024, 10, 27, 2, 30, 0, 'Europe/Berlin') | make_timestamp_ntz(2024, 1, 2, 23, 4, 5)
make_timestamp(2024, abs(j) + 1, 1, 0, 0, y * 0 + 1) | make_timestamp_ltz(1, 1, 1, 0, 0, 0.000001)
make_timestamp(NULL, 1, 2, 3, 4, 5)
convert_timezone('Europe/Berlin', 'America/New_York', TIMESTAMP_NTZ '2024-03-31 02:30:00')
convert_timezone('Europe/Berlin', TIMESTAMP_NTZ '2024-07-01 00:00:00')
convert_timezone('UTC', 'Asia/Tokyo', m)
typeof(i) | typeof(d) | typeof(s) | typeof(NULL) | typeof(m) | typeof(n) | typeof(w) | typeof(p)
typeof(h) | typeof(i + b) | typeof(f)
""".replace("\n", " | ").split(" | ")
_EXPRESSIONS = [text.strip() for text in _EXPRESSIONS if text.strip()]
#: Expressions that must fail in both.
_FAILING = [
    "make_timestamp(2024, j, 1, 0, 0, 0)", "make_timestamp(2024, 1, 1, t, 0, 0)",
    "make_timestamp(2024, 1, 1, 0, 0, 60.5)", "conv(repeat('9', 30), 10, 2)",
    "i + 1", "i - 1", "-i", "abs(i)", "b + 1", "b * 2", "t + t", "-t", "b - j", "i / (j - 3)",
    "i % (j - 3)", "x / (y - y)", "x / 0", "d / 0", "d % 0", "CAST(b AS INT)", "CAST(i AS TINYINT)",
    "CAST(y AS INT)", "CAST(x AS BIGINT)", "CAST(d AS DECIMAL(3,2))", "CAST(s AS INT)",
    "CAST(u AS DATE)", "CAST(s AS BOOLEAN)", "CAST(u AS DOUBLE)", "CAST(z * z * z * z AS INT)",
    "timestamp_millis(b)", "timestamp_seconds(b)", "timestamp_seconds(b - 1)",
    "CAST(d * 100000 AS INT) * 10", "p AND 1 / (i - 7) > 0", "CAST(i AS DECIMAL(3,0))",
    "to_date(u)", "floor(x)", "ceil(x)", "floor(y)", "i DIV (j - 3)", "pmod(i, j - 3)",
    "split_part(s, 'a', j - 3)", "make_date(i, 1, 1 + j * 20)", "make_date(2021, 2, 29)",
    "to_timestamp(u, 'yyyy-MM-dd')", "to_date('31.02.2020', 'dd.MM.yyyy')", "add_months(w, i)",
    "to_timestamp('2020-01-01 25', 'yyyy-MM-dd HH')", "to_timestamp(s)", "unix_timestamp(s)",
    "to_timestamp('1/1/2020', 'dd/MM/yyyy')", "to_timestamp('01/01/20', 'dd/MM/yyyy')",
    "timestampadd(YEAR, i, m)", "timestampadd(HOUR, b, m)", "b DIV CAST(0 AS INT)",
]  # fmt: skip
_SPELLINGS = [
    "", " ", "0", "1", "-1", "+7", " 42 ", "\t42\n", "4 2", "1.5", "-1.", ".5", ".", "1e3", "1E-3",
    "1e", "e5", "0x10", "1_000", "127", "128", "-128", "-129", "2147483647", "2147483648",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "12345.678", "0.005",
    "0.015", "-0.005", "99999999.994", "99999999.995", "1e400", "1d", "1f", "NaN", "nan", "inf",
    "-Infinity", "+inf", "infinity", "true", "TRUE", " t ", "yes", "Y", "n", "no", "f", "on",
    "2020", "2020-2", "2020-02-30", "2020-02-29", "2020-2-9", " 2020-01-01 ", "2020-01-01T",
    "2020-01-01 x", "2020-01-01T12:30", "2020-01-01 12:30:45", "2020-01-01 12:30:45.",
    "2020-01-01 12:30:45.123456789", "2020-01-01 1:2:3.4", "2020-01-01 25:00:00",
    "2020-01-01 12:30:45Z", "2020-01-01T12:30:45+02:00", "2020-01-01 12:30:45 UTC",
    "2020-01-01 12:30:45-0800", "2020-01-01 12:30:45+1", "2020-01-01 12:30:45 GMT+3",
    "2020-01-01 12", "2020-13-01", "20200101", "2020/01/01", "-0", "-0.0", "00012", "1 e3",
    "2020-01-01 12:30:45 +05:30", "0.1", "16777217", "3.4028236e38", "1e-50", "  ", "\u00a01",
    "2020-01-01 12:30:45UTC+2", "2020-01-01 24:00:00", "2020-01-01 12:30:45+18:00",
    "2020-01-01 12:30:45+18:01", "2020-01-01 12:30:60", "2020-1-1 1:1", "2020-01-01 12:30Z",
    "\x7f1", "1\x001", "--1", "+-1", "2020-01-01 12Z", "+2020-01-01", "2020-01-01 12:30:45+08",
    "2020-01-01 12:30:45+800", "2020-01-01 12:30:45.1Z", "2020-01-01 12:30 Z", "12020-01-01",
    "2020-01-01 12:30:45 +5:3", "2020-01-01 12:30:45-00:30", "2020-01-01 12:30+01:00", "2020T1",
    "2020-01-01 12:30:45+05:30:15", "2020-01-01 12:30:45PST", "2020-01-01 12:30:45 Z ", "202",
    "2020-01-01  12:30:45", "2020-01-01 12:30:45 z", "2020-01-01 012:30:45", "2020-01-01 ",
    "2020-01-01 12:", "2020-01-01 12:30:", "2020-01T", "2020-01-01T ", "2020-01-01 12:30:45.1.2",
    "2020-01-01 12:30:45+1:2", "2020-01-01 12:30:45UTC+02:00", "2020-01-01 12:30:45 UT+1",
    "2020-001-01", "2020-01-01 12:30:45Europe/Oslo", "T12:30:45", "12:30:45", "-2020-01-01",
    "Inf ", "1e3d", "1.5f", "1L",
]  # fmt: skip
_NUMBERS = [
    0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 127.9, 128.0, -128.9, -129.0, 2147483647.5, 2147483648.0,
    9.223372036854775e18, 9.223372036854775807e18, -9.223372036854775808e18, 1e19,
    _NAN, _INF, -_INF,
    0.005, 0.015, 0.125, 1e-7, 1e7, 123456789.125, 1e22, 1.7976931348623157e308, 5e-324,
    99999999.995,
    1.1, 0.1, 1 / 3, 100.0, 9999999.0, 0.001, 0.00099, 12345678.9,
]  # fmt: skip
_TARGETS = [
    "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(10,2)", "decimal(38,18)",
    "boolean", "string",
]  # fmt: skip


def _expr(text: str) -> Expr:
    return typed(parse_expression(text), _SCOPE)


def _run(expr: Expr, table: pa.Table) -> pa.Array:
    result = evaluate(expr, lambda c: table.column(c.name), table.num_rows)
    assert result.type == arrow_type(expr.type)
    assert len(result) == table.num_rows
    result.validate(full=True)
    return result


def _values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return values whose equality is exact: NaN equals NaN, 0.0 does not equal -0.0."""
    if pa.types.is_date(column.type) or pa.types.is_timestamp(column.type):
        # Python's dates end with the years 1 and 9999.
        column = column.cast(pa.int32() if pa.types.is_date(column.type) else pa.int64())
    return [repr(v) if isinstance(v, float) else v for v in column.to_pylist()]


def _one_by_one(expr: Expr, table: pa.Table) -> list[Any]:
    """Return values row by row: None if the row fails, "refused" if the expression is refused."""
    found: list[Any] = []
    for row in range(table.num_rows):
        try:
            found += _values(_run(expr, table.slice(row, 1)))
        except ExpressionError as error:
            found.append("refused" if error.code == "unsupported" else None)
    return found


def _frame(spark: SparkSession) -> DataFrame:
    # Without a schema a timestamp without a zone would become one with a zone.
    schema = ", ".join(f"{f.name} {spark_type(f.type)}" for f in _TABLE.schema)
    return spark.createDataFrame(_TABLE, schema=schema)


@pytest.mark.spark
def test_values_are_those_of_spark(spark: SparkSession) -> None:
    frame = _frame(spark)
    exprs = [_expr(text) for text in _EXPRESSIONS]
    answer = frame.selectExpr(*[f"{text} AS c{k}" for k, text in enumerate(_EXPRESSIONS)]).toArrow()
    wrong = []
    for k, (text, expr) in enumerate(zip(_EXPRESSIONS, exprs, strict=True)):
        want, found = _values(answer.column(k)), _values(_run(expr, _TABLE))
        if want != found or spark_type(answer.schema.field(k).type) != expr.type:
            wrong.append((text, want, found, str(answer.schema.field(k).type), str(expr.type)))
    assert wrong == []


@pytest.mark.spark
def test_rendered_text_means_to_spark_what_the_expression_means_here(spark: SparkSession) -> None:
    _check_rendered(_frame(spark), [_expr(text) for text in _EXPRESSIONS])


#: Operands by type: columns of the table, and literals that need care where text is rendered.
_OPERANDS = {
    "int": ["i", "j", "t", "-5", "2147483647", "-2147483648", "year(w)", "length(s)"],
    "bigint": ["b", "9223372036854775807", "-9223372036854775808", "CAST(i AS BIGINT)"],
    "double": ["x", "y", "1e308", "-2.5e-7", "CAST('NaN' AS DOUBLE)", "CAST('inf' AS DOUBLE)"],
    "decimal": ["d", "e", "z", "1.50", "-0.000001", "99999999999999999999.9"],
    "string": ["s", "u", "lower(s)", "''", "'it''s'", "'%'", "'${env:HOME}'", "'é😀'", "r'\\d'"],
    "boolean": ["p", "q", "TRUE", "NULL"],
    "date": ["w", "DATE '0001-01-01'", "DATE '2020-02-29'"],
    "timestamp": [
        "m",
        "TIMESTAMP '1969-12-31 23:59:59.999999'",
        "m - INTERVAL '1:30' HOUR TO MINUTE",
    ],
}
_NUMERIC = st.sampled_from(["int", "bigint", "double", "decimal"])


@st.composite
def _texts(draw: st.DrawFn, kind: str, depth: int = 2) -> str:
    """Draw a random expression of about one type; the planner may refuse it, which is ignored."""

    def of(other: str) -> str:
        return str(draw(_texts(other, depth - 1)))

    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(_OPERANDS[kind]))
    if kind == "boolean":
        other = draw(st.sampled_from(sorted(_OPERANDS)))
        left, right = of(other), of(other)
        return draw(
            st.sampled_from(
                [f"({left} {op} {right})" for op in ("=", "<>", "<", ">=", "<=>")]
                + [f"({left} IS NULL)", f"({left} IN ({right}, {right}))", f"NOT ({of(kind)})"]
                + [f"({of(kind)} AND {of(kind)})", f"({of(kind)} OR {of(kind)})"]
                + [f"({of('string')} LIKE '{draw(st.text('ab%_. ', max_size=4))}')"]
            )
        )
    if kind == "string":
        calls = [f"upper({of(kind)})", f"trim({of(kind)})", f"concat({of(kind)}, {of(kind)})"]
        number = of(draw(_NUMERIC))
        calls += [f"CAST({number} AS STRING)", f"substring({of(kind)}, {of('int')}, 3)"]
        return draw(st.sampled_from(calls))
    if kind in ("date", "timestamp"):
        return f"coalesce({of(kind)}, {of(kind)})"
    left, right = of(kind), of(draw(_NUMERIC))
    calls = [f"({left} {op} {right})" for op in "+-*/%"]
    calls += [f"(- {left})", f"abs({left})", f"CAST({right} AS INT)", f"CAST({right} AS DOUBLE)"]
    calls.append(f"CASE WHEN {of('boolean')} THEN {left} ELSE {of(kind)} END")
    return draw(st.sampled_from(calls))


@pytest.mark.spark
def test_whatever_is_accepted_renders_to_text_of_the_same_value(spark: SparkSession) -> None:
    frame = _frame(spark)
    seen = 0

    @given(st.lists(st.sampled_from(sorted(_OPERANDS)).flatmap(_texts), min_size=8, max_size=8))
    def check(texts: list[str]) -> None:
        nonlocal seen
        sound = []
        for text in texts:
            try:
                expr = _expr(text)
                _run(expr, _TABLE)
            except (PlannerError, ExpressionError):
                continue
            sound.append(expr)
        seen += len(sound)
        _check_rendered(frame, sound)

    check()
    assert seen > 50


def _check_rendered(frame: DataFrame, exprs: list[Expr]) -> None:
    """Compare Spark's value of each expression's text with that of the kernels."""
    plain = [substitute(e, lambda c: Column("", c.name, c.type)) for e in exprs]
    texts = [to_spark_text(e) for e in plain]
    answer = frame.selectExpr(*[f"{text} AS c{k}" for k, text in enumerate(texts)]).toArrow()
    wrong = []
    for k, (text, expr) in enumerate(zip(texts, exprs, strict=True)):
        want, found = _values(answer.column(k)), _values(_run(expr, _TABLE))
        if want != found:
            wrong.append((str(expr), text, want, found))
    assert wrong == []


@pytest.mark.spark
def test_what_fails_in_spark_fails_here(spark: SparkSession) -> None:
    frame = _frame(spark)
    wrong = []
    for text in _FAILING:
        with pytest.raises(ExpressionError):
            _run(_expr(text), _TABLE)
        try:
            wrong.append((text, frame.selectExpr(text).collect()))
        except Exception as error:  # noqa: BLE001 (the kinds differ between Spark's clients)
            assert "Exception" in type(error).__name__  # noqa: PT017
    assert wrong == []


#: Numbers around the limits of timestamps, and around 1970, by unit.
_EPOCHS = [
    sign * (limit // unit) + step
    for unit in (1, 1_000, 1_000_000)
    for limit in (0, 62_135_596_800_000_000, 253_402_300_799_999_999, 2**63 - 1001)
    for sign in (1, -1)
    for step in (-1001, -1000, -999, -1, 0, 1, 999, 1000, 1001)
    if abs(sign * (limit // unit) + step) < 2**63
]


@pytest.mark.spark
def test_times_as_numbers_are_those_of_spark(spark: SparkSession) -> None:
    rng = np.random.default_rng(7)
    spread = rng.integers(-(2**63), 2**63 - 1, 300, endpoint=True) >> rng.integers(0, 63, 300)
    numbers = pa.array([None, 2**63 - 1, -(2**63), *_EPOCHS, *spread.tolist()], pa.int64())
    units = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
    table = pa.table({"v": numbers, "k": pa.array(range(len(numbers)), pa.int32())})
    scope = Scope.of_stream("r", Stream(StreamName("r"), (("v", parse_type("bigint")),)))
    frame = spark.createDataFrame(table)
    for name, unit in units.items():
        text = f"timestamp_{name}(v)"
        found = _one_by_one(typed(parse_expression(text), scope), table)
        fits = [v is not None and -(2**63) <= v * unit < 2**63 for v in numbers.to_pylist()]
        # A value that overflows fails Spark's whole query, so Spark evaluates only the others.
        assert [v is not None for v in found] == fits
        sound = f"CASE WHEN v BETWEEN {-(2**63) // unit + 1} AND {(2**63 - 1) // unit} THEN"
        back = [f"unix_{other}({text})" for other in units]
        answer = frame.selectExpr(
            *[f"{sound} {t} END AS c{i}" for i, t in enumerate([text, *back])]
        )
        columns = answer.toArrow()
        asked = [
            f and v != -(2**63) // unit for f, v in zip(fits, numbers.to_pylist(), strict=True)
        ]
        want = [v if a else None for v, a in zip(found, asked, strict=True)]
        assert _values(columns.column(0)) == want
        for place, inverse in enumerate(back, 1):
            again = _one_by_one(typed(parse_expression(inverse), scope), table)
            want = [v if a else None for v, a in zip(again, asked, strict=True)]
            assert _values(columns.column(place)) == want


@pytest.mark.spark
@pytest.mark.parametrize(
    ("column", "targets"),
    [
        (
            pa.array(_SPELLINGS),
            [*_TARGETS, "date", "timestamp", "timestamp_ntz", "decimal(3,1)"],
        ),
        (pa.array(_NUMBERS), _TARGETS),
        (pa.array(_NUMBERS).cast(pa.float32()), _TARGETS),
        (
            pa.array([0, 1, -1, 127, 128, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), 2**53 + 1]),
            _TARGETS,
        ),
        (
            pa.array(
                [Decimal(v).scaleb(-9) for v in (0, 1, -1, 5 * 10**8, -5 * 10**8, 15 * 10**8)]
                + [Decimal(v) for v in (127, 128, 2**31, 2**63, "0.3", "0.005", "-0.015")]
                + [Decimal("9007199254740993.5"), Decimal("16777217.000000001")],
                pa.decimal128(30, 9),
            ),
            _TARGETS,
        ),
    ],
    ids=["string", "double", "float", "bigint", "decimal"],
)
def test_casts_are_those_of_spark(
    spark: SparkSession, column: pa.Array, targets: list[str]
) -> None:
    table = pa.table({"v": column})
    source = spark_type(column.type)
    casts = [f"try_cast(v AS {target}) AS c{k}" for k, target in enumerate(targets)]
    answer = spark.createDataFrame(table).selectExpr(*casts).toArrow()
    wrong = []
    for k, target in enumerate(targets):
        expr = Call("cast", (Column("", "v", source),), parse_type(target))
        found = _one_by_one(expr, table)
        for given_, want, got in zip(column, _values(answer.column(k)), found, strict=True):
            if _written_by_old_java(given_, target):
                continue
            if got not in (want, "refused"):
                wrong.append((target, given_.as_py(), want, got))
    assert wrong == []


def _written_by_old_java(value: pa.Scalar, target: str) -> bool:
    """Whether Java before version 19 may write ``value`` with other digits than the shortest.

    Spark goes through them for decimals as well. Only floats too great for the point to matter
    are affected among the values of these tests.
    """
    if not pa.types.is_floating(value.type) or target not in ("string", "decimal(38,18)"):
        return False
    return bool(abs(value.as_py()) >= (2**24 if pa.types.is_float32(value.type) else 2**53))


_DUCK_TABLE = _TABLE.select(["i", "j", "x", "y", "d", "e", "s", "u", "p", "q", "w"]).slice(0, 6)
_ATOMS = st.sampled_from(
    [
        f"{a} {op} {b}"
        for a, b in (("i", "j"), ("x", "y"), ("d", "e"), ("s", "u"), ("i", "0"), ("d", "1.25"))
        for op in ("=", "<>", "<", "<=", ">", ">=")
    ]
    + ["p", "q", "i IS NULL", "s LIKE 'a%'", "s LIKE '%b_'", "u LIKE '_b%'", "i IN (7, 3)"]
    + ["j NOT IN (1, NULL)", "w < DATE '2000-01-01'", "coalesce(p, q)", "length(s) > 2"]
    + ["CASE WHEN p THEN i > j ELSE q END", "i BETWEEN j AND 7", "d * e > 1", "d + e < d"]
    + ["coalesce(i, j) % 3 = 1", "d - e >= 0.5", "upper(u) = 'AB'", "s || u > 'abc'"]
)
_CONDITIONS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(
            lambda t: f"({t[0]}) {t[1]} ({t[2]})"
        ),
        inner.map(lambda c: f"NOT ({c})"),
        st.tuples(inner, inner).map(lambda t: f"coalesce({t[0]}, {t[1]})"),
    ),
    max_leaves=8,
)


@given(st.lists(_CONDITIONS, min_size=1, max_size=3))
def test_conditions_agree_with_duckdb(conditions: list[str]) -> None:
    with duckdb.connect() as connection:
        connection.register("r", _DUCK_TABLE)
        listed = ", ".join(f"({c}) AS c{k}" for k, c in enumerate(conditions))
        answer = connection.sql(f"SELECT {listed} FROM r").to_arrow_table()
    exprs = [_expr(c) for c in conditions]
    for k, expr in enumerate(exprs):
        assert _run(expr, _DUCK_TABLE).to_pylist() == answer.column(k).to_pylist()
    mask = filter_mask(exprs, lambda c: _DUCK_TABLE.column(c.name), _DUCK_TABLE.num_rows)
    held = [all(v is True for v in row.values()) for row in answer.to_pylist()]
    assert (mask is None and all(held)) or (mask is not None and mask.tolist() == held)


def test_conjuncts_that_can_fail_see_only_what_the_others_leave() -> None:
    exprs = [_expr("1 / i > 0"), _expr("i <> 0")]
    mask = filter_mask(exprs, lambda c: _TABLE.column(c.name), _TABLE.num_rows)
    assert mask is not None
    assert mask.tolist() == [True, False, False, False, True, False]
    with pytest.raises(ExpressionError, match="divisor is zero"):
        filter_mask(exprs[:1], lambda c: _TABLE.column(c.name), _TABLE.num_rows)


def test_no_conjunct_and_no_row() -> None:
    assert filter_mask([], lambda c: _TABLE.column(c.name), 3) is None
    empty = _TABLE.slice(0, 0)
    for text in ("i / 0", "CAST('x' AS STRING)", "s LIKE 'a%'", "coalesce(i, 1)", "i IN (1, 2)"):
        assert len(_run(_expr(text), empty)) == 0
    assert filter_mask([_expr("i / 0 > 1")], lambda c: empty.column(c.name), 0) is None


def test_an_error_names_the_expression_and_crosses_processes() -> None:
    import pickle

    with pytest.raises(ExpressionError) as caught:
        _run(_expr("i + 1 > 0"), _TABLE)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.code, copy.field) == ("overflow", "(i + 1)".replace("i", "r.i"))
    assert str(copy) == str(caught.value)


def test_columns_are_fetched_once() -> None:
    fetched: list[str] = []

    def fetch(column: Column) -> pa.Array:
        fetched.append(column.name)
        return _TABLE.column(column.name)

    filter_mask([_expr("i > 0"), _expr("i < 9"), _expr("1 / i > 0")], fetch, _TABLE.num_rows)
    assert fetched == ["i"]


@pytest.mark.parametrize(
    ("column", "kind", "values"),
    [
        (pa.array(["a", None]).dictionary_encode(), "string", ["a", None]),
        (pa.array(["a"], pa.large_string()), "string", ["a"]),
        (pa.array([200], pa.uint8()), "smallint", [200]),
        (pa.array([-1], pa.timestamp("ns")), "timestamp_ntz", [datetime(1969, 12, 31, 23, 59, 59, 999999)]),  # noqa: DTZ001, E501
        (pa.array([1, None], pa.timestamp("s", "UTC")), "timestamp", [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]),  # noqa: E501
        (pa.array([date(1969, 12, 31)], pa.date64()), "date", [date(1969, 12, 31)]),
        (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", [Decimal(2**64 - 1)]),
    ],
)  # fmt: skip
def test_columns_take_their_declared_type(column: pa.Array, kind: str, values: list[Any]) -> None:
    expr = Column("", "c", parse_type(kind))
    assert _run(expr, pa.table({"c": column})).to_pylist() == values


def test_a_column_of_another_type_is_refused() -> None:
    with pytest.raises(ExpressionError, match="is declared as bigint"):
        _run(Column("", "c", parse_type("bigint")), pa.table({"c": ["a"]}))


def test_operands_without_a_common_type_are_refused() -> None:
    text, number = Column("", "s", parse_type("string")), Literal(1, parse_type("int"))
    with pytest.raises(ExpressionError, match="no common type"):
        _run(Call("eq", (text, number), BOOLEAN), _TABLE)


def test_a_pattern_that_is_no_literal_is_refused() -> None:
    text = Column("", "s", parse_type("string"))
    with pytest.raises(ExpressionError, match="not a literal"):
        _run(Call("like", (text, text), BOOLEAN), _TABLE)


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20), st.data())
def test_integer_arithmetic_is_exact_or_fails(
    values: list[int | None], data: st.DataObject
) -> None:
    other = data.draw(
        st.lists(st.none() | st.integers(-5, 5), min_size=len(values), max_size=len(values))
    )
    kind = parse_type("bigint")
    table = pa.table({"a": pa.array(values, pa.int64()), "c": pa.array(other, pa.int64())})
    for op, function in (("add", int.__add__), ("sub", int.__sub__), ("mul", int.__mul__)):
        want = [
            None if a is None or c is None else function(a, c)
            for a, c in zip(values, other, strict=True)
        ]
        expr = Call(op, (Column("", "a", kind), Column("", "c", kind)), kind)
        if all(v is None or -(2**63) <= v < 2**63 for v in want):
            assert _run(expr, table).to_pylist() == want
        else:
            with pytest.raises(ExpressionError, match="out of the range"):
                _run(expr, table)


@pytest.mark.parametrize("kind", list(TypeKind))
def test_types_go_to_arrow_and_back(kind: TypeKind) -> None:
    if kind is TypeKind.NULL:
        with pytest.raises(ArrowTypeError):
            spark_type(arrow_type(DataType(kind)))
    elif kind in INTERVALS:
        for units in range(len(INTERVAL_UNITS[kind])):
            field = typed_field("a", DataType(kind, 0, units))
            assert field_type(field) == DataType(kind, 0, units)
    elif kind is TypeKind.VARIANT:
        assert arrow_type(DataType(kind)) == pa.string()
    else:
        texts = {"array": "array<int>", "struct": "struct<a:int>", "map": "map<int,date>"}
        spark = parse_type(texts.get(kind, kind))
        assert spark_type(arrow_type(spark)) == spark


def test_types_without_counterpart_are_refused() -> None:
    for arrow in (
        pa.float16(),
        pa.time64("us"),
        pa.list_(pa.time64("us")),
        pa.struct([]),
        pa.decimal256(50, 2),
    ):
        with pytest.raises(ArrowTypeError, match="no counterpart"):
            spark_type(arrow)


def test_masks_are_numpy() -> None:
    mask = filter_mask([_expr("p")], lambda c: _TABLE.column(c.name), _TABLE.num_rows)
    assert mask is not None
    assert mask.dtype == np.bool_
