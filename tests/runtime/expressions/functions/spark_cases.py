"""Expressions of every SQL function over the columns of :mod:`random_rows`, by the function's name.

Most have a few expressions, over several types and with random arguments, among them arguments on
which the function fails. A text is Spark's as well; where Spark writes the expression in another
way, or has another value on some rows, it is a :class:`Case`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """An expression, and its difference from Spark.

    Attributes:
        spark: the expression as Spark writes it; empty: the same.
        but: condition, in Spark's SQL, on the rows on which values or failures differ.
        fails: condition on which both fail, for functions that Spark can't evaluate on further rows
            after one that fails.
        why: reason of the difference, as ``docs/sql.md`` has it.
        last_bits: number of representable doubles by which values may differ.
        numerals: whether numbers in texts are compared by value. Java before 19 writes more digits
            of some doubles than needed.
    """

    text: str
    spark: str = ""
    but: str = ""
    fails: str = ""
    why: str = ""
    last_bits: int = 0
    numerals: bool = False


def _rounded(*texts: str) -> tuple[Case, ...]:
    return tuple(Case(text, last_bits=1) for text in texts)


def _json(*texts: str) -> tuple[Case, ...]:
    """Expressions whose difference is that single quotes are not JSON."""
    return tuple(Case(text, but=_QUOTED, why="single quotes") for text in texts)


def _alias(name: str, other: str, texts: tuple[str | Case, ...]) -> tuple[str | Case, ...]:
    """The same expressions with another name of a function."""
    return tuple(one.replace(f"{other}(", f"{name}(") for one in texts if isinstance(one, str))


_QUOTED = "js LIKE '{''%'"
_BROKEN = " OR js LIKE '{%' AND try_parse_json(js) IS NULL"
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
          "MICROSECOND")  # fmt: skip
_ZONES = ("Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kathmandu", "+05:30")
_HOST = "concat(j, '.', pmod(i, 256), '.', pmod(c, 256), '.', pmod(t, 128))"
_BINS = "timestamp_micros(unix_micros(m) - pmod(unix_micros(m) - {origin}, {width}))"
_BEGIN = "unix_micros(TIMESTAMP '2000-01-03 00:00:00')"

DATES: dict[str, tuple[str | Case, ...]] = {
    "add_months": ("add_months(w, i)", "add_months(m, k)", "add_months(a, t)"),
    "convert_timezone": (
        *(f"convert_timezone('{zone}', r)" for zone in _ZONES),
        "convert_timezone('Europe/Berlin', 'America/New_York', CAST(r AS TIMESTAMP_NTZ))",
        "convert_timezone('Asia/Tokyo', make_timestamp_ntz(2000 + i % 90, 1, 2, 3, 4, 5))",
    ),
    "curdate": ("datediff(w, curdate())",),
    "current_date": ("datediff(current_date(), w)", "current_date() > a"),
    "current_timestamp": ("timestampdiff(SECOND, m, current_timestamp())",),
    "now": ("r < now()", "timestampdiff(MONTH, now(), r)"),
    "date_add": ("date_add(w, i)", "date_add(m, h)", "date_add(MONTH, i, r)",
                 Case("date_add(a, k)", but="CAST(unix_date(a) AS BIGINT) + k NOT BETWEEN "
                      "-719162 AND 2932896", why="beyond the range of dates is an error")),
    "date_sub": ("date_sub(w, i)", "date_sub(n, h)",
                 Case("date_sub(a, k)", but="CAST(unix_date(a) AS BIGINT) - k NOT BETWEEN "
                      "-719162 AND 2932896", why="beyond the range of dates is an error")),
    "date_bin": (
        Case("date_bin(INTERVAL '15' MINUTE, m)",
             _BINS.format(origin=_BEGIN, width=900_000_000)),
        Case("date_bin(INTERVAL '7' DAY, m, TIMESTAMP '2024-02-29 01:02:03.5')",
             _BINS.format(origin="unix_micros(TIMESTAMP '2024-02-29 01:02:03.5')",
                          width=604_800_000_000)),
    ),
    "time_bucket": (
        Case("time_bucket(INTERVAL '36' HOUR, m)",
             _BINS.format(origin=_BEGIN, width=129_600_000_000)),
    ),
    "date_diff": ("date_diff(w, m)", "date_diff(HOUR, m, n)"),
    "datediff": ("datediff(w, a)", "datediff(m, n)", "datediff(MINUTE, m, r)"),
    "date_format": (
        "date_format(m, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "date_format(m, 'd MMM yy, h.m a')",
        "date_format(w, 'EEEE D QQQ')", "date_format(n, 'k:K E MMMM y')",
        "date_format(r, 'DDD qq L')",
    ),
    "date_from_unix_date": (
        "date_from_unix_date(i)",
        "date_from_unix_date(k)",
    ),
    "date_part": (
        "date_part('year', w)", "date_part('week', m)", "date_part('SECOND', n)",
        "date_part('doy', a)",
        "date_part('hour', m - n)", "date_part('dow', r)",
    ),
    "datepart": ("datepart('month', w)", "datepart('quarter', m)", "datepart('minute', n)"),
    "date_trunc": (
        *(f"date_trunc('{unit}', {'mn'[n % 2]})" for n, unit in enumerate(_UNITS)),
        "date_trunc('month', w)", "date_trunc('week', w)",
    ),
    "dateadd": ("dateadd(DAY, i, m)", "dateadd(SECOND, c % 1000000, n)", "dateadd(w, i)"),
    "day": ("day(w)", "day(m)", "day(n)"),
    "dayname": ("dayname(w)", "dayname(m)"),
    "dayofmonth": ("dayofmonth(a)", "dayofmonth(n)"),
    "dayofweek": ("dayofweek(w)", "dayofweek(m)"),
    "dayofyear": ("dayofyear(w)", "dayofyear(n)"),
    "from_unixtime": ("from_unixtime(c % 60000000000)", "from_unixtime(i, 'yyyy/MM/dd HH:mm')"),
    "from_utc_timestamp": tuple(f"from_utc_timestamp(r, '{zone}')" for zone in _ZONES),
    "to_utc_timestamp": tuple(f"to_utc_timestamp(r, '{zone}')" for zone in _ZONES),
    "hour": ("hour(m)", "hour(n)"),
    "minute": ("minute(m)", "minute(n)"),
    "second": ("second(m)", "second(n)"),
    "last_day": ("last_day(w)", "last_day(m)", "last_day(n)"),
    "make_date": ("make_date(2000 + i, j, 28)", "make_date(abs(h), 1 + j % 12, t % 31)"),
    "make_dt_interval": (
        "CAST(make_dt_interval(i, j, t, d % 60) AS STRING)", "m + make_dt_interval(j, h)",
        "CAST(make_dt_interval(k) AS STRING)",
    ),
    "make_interval": (
        Case("CAST(make_interval(0, 0, j, i, t, h, d % 60) AS STRING)",
             "CAST(make_dt_interval(7 * j + i, t, h, d % 60) AS STRING)"),
        "a + make_interval(0, 0, 0, i)",
        "r + make_interval(j, i)",
    ),
    "make_timestamp": (
        "make_timestamp(2000 + i, 2, 28, 23, 59, d % 60)",
        "make_timestamp(2000 + i, j, 28, abs(t) % 25, abs(t) % 61, abs(d) % 61)",
        "make_timestamp(2024 + i % 9, 3, 31, 2, 30, 0.5, 'Europe/Berlin')",
    ),
    "make_timestamp_ltz": ("make_timestamp_ltz(2000 + i, j, 1, j, t % 60, abs(d) % 60)",),
    "make_timestamp_ntz": ("make_timestamp_ntz(5000 + h % 5000, j, 28, j, 0, abs(y))",),
    "make_ym_interval": (
        "CAST(make_ym_interval(i, h) AS STRING)", "r + make_ym_interval(j, i)",
        "CAST(make_ym_interval(k, t) AS STRING)",
    ),
    "month": ("month(w)", "month(m)"),
    "monthname": ("monthname(w)", "monthname(n)"),
    "months_between": ("months_between(m, n)", "months_between(w, r)", "months_between(a, w)"),
    "next_day": ("next_day(w, 'MON')", "next_day(m, 'Friday')", "next_day(a, 'su')"),
    "quarter": ("quarter(w)", "quarter(m)"),
    "timestamp_micros": ("timestamp_micros(c)", "timestamp_micros(k)"),
    "timestamp_millis": ("timestamp_millis(c)", "timestamp_millis(h)",
                         "timestamp_millis(b DIV 1000)"),
    "timestamp_seconds": ("timestamp_seconds(k)", "timestamp_seconds(c % 100000000000)",
                          "unix_seconds(timestamp_seconds(b))"),
    "timestampadd": (
        *(f"timestampadd({unit}, i, r)" for unit in _UNITS),
        "timestampadd(YEAR, i, m)", "timestampadd(DAY, t, w)",
    ),
    "timestampdiff": tuple(f"timestampdiff({unit}, m, n)" for unit in _UNITS),
    "timezone": (
        Case("timezone('Europe/Berlin', r)", "convert_timezone('Europe/Berlin', r)"),
        Case("timezone('Asia/Kathmandu', CAST(r AS TIMESTAMP_NTZ))",
             "to_utc_timestamp(r, 'Asia/Kathmandu')"),
    ),
    "to_date": (
        "to_date(o)", "to_date(m)", "to_date(date_format(w, 'dd MMM yyyy'), 'dd MMM yyyy')",
        "to_date(o, 'yyyy-MM-dd')",
    ),
    "to_timestamp": (
        "to_timestamp(o)", "to_timestamp(w)",
        "to_timestamp(date_format(m, 'ddMMyyyyHHmm'), 'ddMMyyyyHHmm')",
        "to_timestamp(date_format(m, 'd/M/yyyy h:m:s a'), 'd/M/yyyy h:m:s a')",
        "to_timestamp(concat(left(o, 10), ' 01:02:03'), 'yyyy-MM-dd HH:mm:ss')",
    ),
    "to_timestamp_ltz": ("to_timestamp_ltz(o)", "to_timestamp_ltz(n)"),
    "to_timestamp_ntz": (
        "to_timestamp_ntz(o)", "to_timestamp_ntz(m)",
        "to_timestamp_ntz(date_format(n, 'yyyy-MM-dd HH:mm:ss'), 'yyyy-MM-dd HH:mm:ss')",
    ),
    "try_to_timestamp": ("try_to_timestamp(o)", "try_to_timestamp(o, 'yyyy-MM-dd')"),
    "to_unix_timestamp": ("to_unix_timestamp(m)", "to_unix_timestamp(o, 'yyyy-MM-dd')"),
    "unix_timestamp": ("unix_timestamp(m)", "unix_timestamp(w)",
                       "unix_timestamp(concat(left(o, 10), ' 23'), 'yyyy-MM-dd HH')"),
    "trunc": tuple(f"trunc({'wm'[n % 2]}, '{unit}')" for n, unit in enumerate(
        ("year", "quarter", "month", "week"))),
    "unix_date": ("unix_date(w)", "unix_date(a)"),
    "unix_micros": ("unix_micros(m)", "unix_micros(r)"),
    "unix_millis": ("unix_millis(m)", "unix_millis(r)"),
    "unix_seconds": ("unix_seconds(m)", "unix_seconds(r)"),
    "weekday": ("weekday(w)", "weekday(m)"),
    "weekofyear": ("weekofyear(w)", "weekofyear(n)"),
    "year": ("year(w)", "year(m)", "year(n)"),
}  # fmt: skip

NUMBERS: dict[str, tuple[str | Case, ...]] = {
    "abs": ("abs(t)", "abs(k)", "abs(b)", "abs(f)", "abs(x)", "abs(e)", "abs(m - n)"),
    "acos": _rounded("acos(y)", "acos(x)"),
    "asin": _rounded("asin(y)", "asin(d)"),
    "atan": _rounded("atan(x)", "atan(y)"),
    "atan2": _rounded("atan2(x, y)", "atan2(y, k)"),
    "cos": _rounded("cos(y)", "cos(x)"),
    "sin": _rounded("sin(y)", "sin(x)"),
    "tan": _rounded("tan(y)", "tan(x)"),
    "exp": _rounded("exp(y)", "exp(x)"),
    "expm1": _rounded("expm1(y)", "expm1(x)"),
    "hypot": _rounded("hypot(x, y)", "hypot(i, d)"),
    "ln": _rounded("ln(x)", "ln(c)"),
    "log": (*_rounded("log(x)"), *(Case(text, last_bits=8)
                                         for text in ("log(abs(y), x)", "log(2, c)"))),
    "log10": _rounded("log10(x)", "log10(e)"),
    "log1p": _rounded("log1p(x)", "log1p(y)"),
    "log2": _rounded("log2(x)", "log2(b)"),
    "pow": _rounded("pow(y, j)", "pow(x, 2)"),
    "power": _rounded("power(x, y)", "power(i, j)", "power(d, 0.5D)"),
    "degrees": ("degrees(x)", "degrees(y)"),
    "radians": ("radians(x)", "radians(y)"),
    "sqrt": ("sqrt(x)", "sqrt(c)", "sqrt(abs(e))"),
    "e": ("e() * y",),
    "pi": ("pi() * y",),
    "bround": ("bround(x)", "bround(x, 2)", "bround(e, 1)", "bround(d)", "bround(f, 1)",
               "bround(k)", "bround(y / 8, 2)"),
    "round": ("round(x)", "round(x, 2)", "round(e, 1)", "round(d)", "round(z, 5)", "round(f, 1)",
              "round(b)", "round(y / 8, 2)"),
    "rint": ("rint(x)", "rint(y)", "rint(d)"),
    "ceil": ("ceil(x)", "ceil(y)", "ceil(e)", "ceil(z)", "ceil(b)", "ceil(f)"),
    "ceiling": ("ceiling(y)", "ceiling(d)"),
    "floor": ("floor(x)", "floor(y)", "floor(e)", "floor(z)", "floor(b)", "floor(f)"),
    "greatest": ("greatest(i, b, d)", "greatest(x, y)", "greatest(f, x, i)", "greatest(s, u)",
                 "greatest(w, a)", "greatest(m, r)", "greatest(k, i, t, h)"),
    "least": ("least(i, b, d)", "least(x, y)", "least(f, x, i)", "least(s, u)", "least(w, a)",
              "least(m, r)", "least(e, z)"),
    "isnan": ("isnan(x)", "isnan(f)"),
    "mod": ("mod(k, i)", "mod(b, 7)", "mod(x, y)", "mod(d, e)", "mod(t, -3)", "mod(z, 0.7)"),
    "pmod": ("pmod(k, i)", "pmod(b, 1000)", "pmod(x, y)", "pmod(t, -3)", "pmod(b, c)",
             "pmod(h, j)"),
    "shiftleft": ("shiftleft(k, i)", "shiftleft(b, j)", "shiftleft(t, j)"),
    "shiftright": ("shiftright(k, i)", "shiftright(b, j)", "shiftright(h, 3)"),
    "sign": ("sign(x)", "sign(d)", "sign(k)", "sign(m - n)"),
    "signum": ("signum(y)", "signum(z)", "signum(f)"),
    "try_add": ("try_add(k, i)", "try_add(b, c)", "try_add(x, y)", "try_add(g, 1)",
                "try_add(t, t)", "try_add(w, i)"),
    "try_divide": ("try_divide(i, j)", "try_divide(x, y)", "try_divide(d, e)", "try_divide(b, t)"),
    "try_multiply": ("try_multiply(k, i)", "try_multiply(b, c)", "try_multiply(x, y)",
                     "try_multiply(z, e)", "try_multiply(g, d)"),
    "try_subtract": ("try_subtract(k, i)", "try_subtract(b, c)", "try_subtract(f, x)",
                     "try_subtract(z, g)"),
    "width_bucket": ("width_bucket(y, -5, 5, 10)", "width_bucket(x, y, 10, j)",
                     "width_bucket(d, 100, -100, c % 50)"),
}  # fmt: skip

TEXTS: dict[str, tuple[str | Case, ...]] = {
    "ascii": ("ascii(s)", "ascii(u)", "ascii(b)"),
    "base64": ("base64(s)", "base64(bin)"),
    "bin": ("bin(b)", "bin(k)", "bin(t)"),
    "bit_length": ("bit_length(s)", "bit_length(bin)"),
    "btrim": ("btrim(s)", "btrim(s, 'a ')", "btrim(s, u)"),
    "trim": ("trim(s)", "trim(LEADING 'ab' FROM s)", "trim(TRAILING u FROM s)",
             "trim(BOTH ' \n\taé' FROM s)"),
    "ltrim": ("ltrim(s)", "ltrim(concat('  ', u))"),
    "rtrim": ("rtrim(s)", "rtrim(concat(u, '  '))"),
    "char": ("char(i)", "char(b)"),
    "chr": ("chr(i)", "chr(c)"),
    "char_length": ("char_length(s)",),
    "character_length": ("character_length(concat(s, u))",),
    "length": ("length(s)", "length(u)"),
    "octet_length": ("octet_length(s)", "octet_length(bin)"),
    "charindex": (
        Case("charindex(u, s)", "locate(u, s)"), Case("charindex('a', s, j)", "locate('a', s, j)"),
    ),
    "instr": ("instr(s, u)", "instr(s, 'b')"),
    "locate": ("locate(u, s)", "locate(u, s, 3)", "locate('a', s, t % 9)"),
    "position": ("position(u, s)", "position('b' IN s)", "position(u, s, j)"),
    "concat": ("concat(s, u)", "concat(s, b, d)", "concat(w, m, p)",
               "concat(xs, ys)", "concat(es, array(u))"),
    "concat_ws": ("concat_ws('/', s, u, i)", "concat_ws('é', u, s, u)",
                  Case("concat_ws(' ', x, f, y, w)", numerals=True)),
    "contains": ("contains(s, 'ab')", "contains(s, 'é')", "contains(s, '')"),
    "startswith": ("startswith(s, 'a')", "startswith(u, 'a')"),
    "endswith": ("endswith(s, 'b')", "endswith(u, 'b')"),
    "conv": ("conv(v, 16, 10)", "conv(b, 10, 36)", "conv(c, 10, -7)", "conv(i, 8, 2 + j)",
             "conv(v, 36, -2)", "conv(s, 16, j)"),
    "format_number": (Case("format_number(x, 2)", numerals=True), "format_number(d, 1)",
                      "format_number(b, 0)", "format_number(y, 5)", "format_number(z, 3)",
                      "format_number(f, 1)"),
    "format_string": (
        "format_string('%5s|%-9.3s|%s', s, u, i)", "format_string('%08d|%+,d|%x', b, k, i)",
        Case("format_string('%.2f|%+12.3f|%,.1f', y, x, y)", numerals=True),
    ),
    "printf": ("printf('%2$s %1$d%%', b, s)", "printf('%-8d|% d|%s', k, t, p)"),
    "initcap": ("initcap(s)", "initcap(concat(u, ' ', s))"),
    "lower": ("lower(s)", "lower(u)"),
    "lcase": ("lcase(s)",),
    "upper": ("upper(s)", "upper(u)"),
    "ucase": ("ucase(s)",),
    "left": ("left(s, 3)", "left(s, i)", "left(s, j)"),
    "right": ("right(s, 3)", "right(u, 1)", "right(s, 12)"),
    "levenshtein": ("levenshtein(u, v)", "levenshtein(left(s, 30), u)",
                    "levenshtein(left(s, 9), right(s, 9))"),
    "lpad": ("lpad(s, 8, '*')", "lpad(s, i, 'éa')", "lpad(u, j)", "lpad(i, j, u)"),
    "rpad": ("rpad(s, 8, 'ab')", "rpad(s, i, 'é')", "rpad(u, j)", "rpad(c, j, u)"),
    "overlay": ("overlay(s PLACING u FROM i FOR 2)", "overlay(s, 'xy', 3)", "overlay(s, u, i, i)",
                "overlay(s PLACING u FROM j)"),
    "parse_url": (
        *(f"parse_url(url, '{part}')" for part in (
            "HOST", "PATH", "QUERY", "REF", "PROTOCOL", "FILE", "AUTHORITY", "USERINFO")),
        "parse_url(url, 'QUERY', 'x')",
    ),
    "repeat": ("repeat(u, i)", "repeat(left(s, 20), j)"),
    "space": ("concat(space(j), 'x')", "length(space(i))"),
    "replace": ("replace(s, 'a', 'xy')", "replace(s, u, '-')", "replace(s, u)",
                "replace(s, left(s, 1), u)"),
    "reverse": ("reverse(s)", "reverse(b)", "reverse(xs)", "reverse(ls)"),
    "soundex": ("soundex(s)", "soundex(u)"),
    "split_part": ("split_part(s, 'a', 2)", "split_part(s, u, 1)", "split_part(s, 'ab', -1)",
                   "split_part(s, u, t)"),
    "substr": ("substr(s, i)", "substr(s FROM i)", "substr(s, j, t)"),
    "substring": ("substring(s, i, 4)", "substring(s, j, i)", "substring(s FROM 2 FOR i)"),
    "substring_index": ("substring_index(s, 'a', 2)", "substring_index(s, 'a', -2)",
                        "substring_index(s, u, i)"),
    "to_char": (
        *(f"to_char({value}, '{form}')" for value, form in (
            ("i", "S99999"), ("i", "999PR"), ("d", "9,999,999,999.99MI"),
            ("c % 10000", "$9G999D99"), ("d % 1000", "000.00"), ("c % 100000", "0,099.9"))),
        "to_char(m, 'yyyy-MM-dd HH:mm')", "to_char(bin, 'hex')", "to_char(w, 'd MMM yyyy')",
    ),
    "to_varchar": ("to_varchar(i, '999S')", "to_varchar(bin, 'base64')",
                   "to_varchar(n, 'HH:mm:ss')"),
    "translate": ("translate(s, 'abé', 'xy')", "translate(s, u, 'z')"),
    "unhex": ("unhex(v)", "unhex(hex(s))"),
    "url_decode": ("url_decode(url_encode(s))", "url_decode(v)",
                   "url_decode(replace(s, '%', '%4'))"),
    "url_encode": ("url_encode(s)", "url_encode(url)"),
    "regexp": ("regexp(s, '[ab]+\\\\s')", "regexp(v, '^-?[0-9]+$')"),
    "regexp_like": ("regexp_like(s, '(?i)AB')", "regexp_like(s, '[^\\\\w]$')"),
    "rlike": ("rlike(s, '^.*$')", "rlike(s, 'a.b')", "rlike(url, '^https?://[^/]+/a')"),
    "regexp_count": ("regexp_count(s, 'a')", "regexp_count(s, '[a-c]+.')"),
    "regexp_extract": ("regexp_extract(s, '([a-z]+)([0-9]+)', 2)",
                       "regexp_extract(s, '(a|ab)(.?)', 2)", "regexp_extract(s, '.+', 0)",
                       "regexp_extract(o, '^([0-9]+)-([0-9]+)')"),
    "regexp_replace": ("regexp_replace(s, '[ab]+', '<$0>')",
                       "regexp_replace(s, '(\\\\w)(\\\\W)', '$2$1')",
                       "regexp_replace(s, '^\\\\s+', '')"),
    "split": ("split(s, 'a')", "split(s, '[ ,.]+')", "split(o, '[-: ]')[0]", "split(s, 'b')[1]"),
}  # fmt: skip

_REDUCED = (
    "reduce(xs, 0L, (s, x) -> s + coalesce(x, i))",
    "reduce(fs, 0.0D, (s, y) -> s + coalesce(y, 1.5D))",
    "reduce(es, '', (s, x) -> concat(s, coalesce(x, u)))",
    "reduce(xs, 0, (s, x) -> s + coalesce(x, 0), s -> s * 2.5)",
)

NESTED: dict[str, tuple[str | Case, ...]] = {
    "aggregate": _alias("aggregate", "reduce", _REDUCED),
    "reduce": _REDUCED,
    "array": ("array(i, j)", "array(i, 2, NULL)", "array(x, k)", "array(pt, pt)", "array(xs, ys)",
              "array(s, u)"),
    "array_append": ("array_append(xs, i)", "array_append(es, s)", "array_append(fs, x)"),
    "array_prepend": ("array_prepend(xs, i)", "array_prepend(es, u)", "array_prepend(ms, m)"),
    "array_compact": ("array_compact(xs)", "array_compact(ls)", "array_compact(es)"),
    "array_contains": ("array_contains(xs, j)", "array_contains(es, u)", "array_contains(fs, y)",
                       "array_contains(ds, d)"),
    "array_distinct": ("array_distinct(xs)", "array_distinct(es)", "array_distinct(fs)",
                       "array_distinct(ds)", "array_distinct(ms)"),
    "array_except": ("array_except(xs, ys)", "array_except(es, array(u))",
                     "array_except(fs, array(y, 1.5D, 0.0D))"),
    "array_intersect": ("array_intersect(xs, ys)", "array_intersect(es, array(u, 'a'))",
                        "array_intersect(fs, array(y, 1.5D, 0.0D))"),
    "array_union": ("array_union(xs, ys)", "array_union(fs, array(x))", "array_union(ds, ds)"),
    "array_join": ("array_join(es, '/')", "array_join(es, '/', 'none')", "array_join(xs, ',')",
                   "array_join(fs, ';')"),
    "array_max": ("array_max(xs)", "array_max(fs)", "array_max(es)", "array_max(ds)",
                  "array_max(ms)"),
    "array_min": ("array_min(xs)", "array_min(fs)", "array_min(es)", "array_min(ms)"),
    "array_position": ("array_position(xs, j)", "array_position(es, u)", "array_position(fs, y)"),
    "array_remove": ("array_remove(xs, j)", "array_remove(fs, y)", "array_remove(es, u)"),
    "array_repeat": ("array_repeat(i, 3)", "array_repeat(u, j)", "array_repeat(s, t % 4)"),
    "array_size": ("array_size(xs)", "array_size(ls)"),
    "array_sort": ("array_sort(xs)", "array_sort(fs)", "array_sort(es)", "array_sort(ms)"),
    "sort_array": ("sort_array(xs)", "sort_array(fs, false)", "sort_array(es)",
                   "sort_array(ds, false)"),
    "arrays_overlap": ("arrays_overlap(xs, ys)", "arrays_overlap(es, array(u))",
                       "arrays_overlap(fs, array(y, x))"),
    "cardinality": ("cardinality(xs)", "cardinality(mp)"),
    "size": ("size(xs)", "size(mo)", "size(gs)"),
    "element_at": ("element_at(xs, 1)", "element_at(xs, j % 5)", "coalesce(element_at(mp, 'a'), i)",
                   "element_at(es, t % 3)"),
    "try_element_at": ("try_element_at(xs, -1)", "try_element_at(xs, j % 4)",
                       "coalesce(try_element_at(mp, 'a'), i)",
                       "try_element_at(es, t % 3)"),
    "get": ("get(xs, j)", "get(ls, 0).t", "get(es, t % 4)", "get(fs, 1)"),
    "exists": ("exists(xs, x -> x = j)", "exists(fs, v -> v > y)", "exists(es, v -> v = u)"),
    "forall": ("forall(xs, x -> x > -3)", "forall(es, v -> v LIKE '%a%')",
               "forall(fs, v -> v < x)"),
    "filter": ("filter(xs, x -> x > j - 2)", "filter(xs, (x, n) -> n > 0 OR x IS NULL)",
               "filter(ls, v -> v.t = u)", "filter(gs, v -> exists(v, x -> x = j))"),
    "transform": ("transform(xs, x -> x + 1)", "transform(xs, (x, n) -> x % 7 * n + j)",
                  "transform(es, v -> concat(v, u))",
                  "transform(gs, v -> transform(v, x -> x % 5 + size(v) + i))",
                  "transform(xs, x -> 6 / (x - 2))"),
    "zip_with": ("zip_with(xs, ys, (x, y) -> coalesce(x, y, i))",
                 "zip_with(xs, es, (x, v) -> named_struct('x', x, 'v', v))",
                 "zip_with(xs, ys, (x, y) -> x + y)"),
    "flatten": ("flatten(gs)", "flatten(array(es, array(u)))"),
    "slice": ("slice(xs, 1, 2)", "slice(xs, t % 4, j)", "slice(ls, -2, 2)"),
    "sequence": ("sequence(j, i % 20)", "sequence(i, i + j * 3, 3)", "sequence(j, 12, t % 3)",
                 "sequence(a, date_add(a, j), INTERVAL '2' DAY)",
                 "sequence(a, date_add(a, j * 9), INTERVAL '1' MONTH)",
                 "sequence(r, timestampadd(MINUTE, t, r), INTERVAL '20' MINUTE)"),
    "from_json": (
        *(Case(f"from_json(js, '{kind}')", but=_QUOTED + _BROKEN, why="partial results")
          for kind in ("a INT, b STRING", "a STRING, b ARRAY<INT>",
                       "a DOUBLE, b STRUCT<c: BOOLEAN, a: DATE>",
                       "a DECIMAL(5,2), c MAP<STRING,INT>")),
        *_json("from_json(js, 'ARRAY<STRUCT<a: BIGINT>>')", "from_json(js, 'MAP<STRING,STRING>')"),
        "from_json(concat('[', j, ',', t, ',null]'), 'ARRAY<TINYINT>')",
    ),
    "to_json": (
        "to_json(pt)", "to_json(ls)", "to_json(mp)", "to_json(gs)", "to_json(mo)",
        Case("to_json(named_struct('x', x, 's', s, 'r', r, 'd', d, 'w', a))", numerals=True),
        "to_json(try_parse_json(js))",
    ),
    "map": ("map('a', i, 'b', j)", Case("map(k, s, b, u)", fails="k IS NULL OR b IS NULL OR k = b"),
            Case("map(u, x)", fails="u IS NULL")),
    "map_concat": ("map_concat(mp, map('z', i))", "map_concat(map(1, x), map(9L, y))",
                   Case("map_concat(mp, map('a', j))", fails="map_contains_key(mp, 'a')")),
    "map_contains_key": ("map_contains_key(mp, 'a')", "map_contains_key(mo, j)"),
    "map_entries": ("map_entries(mp)", "map_entries(mo)"),
    "map_filter": ("map_filter(mp, (k, v) -> v > j - 2 OR k = u)",
                   "map_filter(mo, (k, v) -> size(v) > 1)"),
    "map_from_arrays": ("map_from_arrays(array('x', 'y'), array(i, j))",
                        Case("map_from_arrays(xs, xs)", fails="exists(xs, v -> v IS NULL) OR "
                             "size(array_distinct(xs)) < size(xs)"),
                        Case("map_from_arrays(array_distinct(ys), array_distinct(ys))",
                             fails="exists(ys, v -> v IS NULL)")),
    "map_from_entries": ("map_from_entries(map_entries(mp))",
                         "map_from_entries(transform(xs, (x, n) -> struct(n, x)))",
                         Case("map_from_entries(ls)", fails="NOT exists(ls, v -> v IS NULL) AND ("
                              "exists(ls, v -> v.n IS NULL) OR size(array_distinct(ls.n)) < "
                              "size(ls))")),
    "map_keys": ("map_keys(mp)", "map_keys(mo)"),
    "map_values": ("map_values(mp)", "map_values(mo)"),
    "map_zip_with": (
        "map_zip_with(mp, map('a', i), (k, v, w) -> coalesce(v % 9, w))",
        "map_zip_with(mo, map(2L, x), (k, v, w) -> named_struct('v', v, 'w', w, 'i', i))",
    ),
    "transform_keys": ("transform_keys(mp, (k, v) -> concat(k, '!'))",
                       "transform_keys(mo, (k, v) -> k * 2.5D + 1)",
                       Case("transform_keys(mp, (k, v) -> v)", fails="exists(map_values(mp), "
                            "v -> v IS NULL) OR size(array_distinct(map_values(mp))) < size(mp)")),
    "transform_values": ("transform_values(mp, (k, v) -> concat(k, v))",
                         "transform_values(mo, (k, v) -> size(v) + k % 9 + i)"),
    "named_struct": ("named_struct('a', i, 'b', s)", "named_struct('a', named_struct('b', xs))"),
    "struct": ("struct(i, u)", "struct(c + 1, u AS t, pt.n)"),
    "get_json_object": (
        *_json("get_json_object(js, '$.a')", "get_json_object(js, '$')"),
        "coalesce(get_json_object(js, '$.b'), u)", "coalesce(get_json_object(js, '$.a[0]'), u)",
        "coalesce(get_json_object(js, '$[''a b'']'), u)",
        "coalesce(get_json_object(js, '$.a.b'), u)",
    ),
    "parse_json": ("to_json(parse_json(js))", "to_json(parse_json(concat('[', i, ',', y, ']')))"),
    "try_parse_json": ("to_json(try_parse_json(js))", "CAST(try_parse_json(js) AS STRING)"),
    "variant_get": (
        "to_json(variant_get(try_parse_json(js), '$.a'))",
        "variant_get(try_parse_json(js), '$.a', 'string')",
        "variant_get(try_parse_json(js), '$.a', 'int')",
    ),
    "try_variant_get": (
        "try_variant_get(try_parse_json(js), '$.a', 'double')",
        "try_variant_get(try_parse_json(js), '$.a', 'decimal(10,2)')",
        "try_variant_get(try_parse_json(js), '$', 'map<string,string>')",
        "coalesce(try_variant_get(try_parse_json(js), '$.a', 'array<int>'), xs)",
    ),
    "is_variant_null": ("is_variant_null(variant_get(try_parse_json(js), '$.a'))",
                        "is_variant_null(try_parse_json(js))"),
    "schema_of_variant": ("schema_of_variant(try_parse_json(js))",),
}  # fmt: skip

OTHERS: dict[str, tuple[str | Case, ...]] = {
    "crc32": ("crc32(s)", "crc32(bin)"),
    "hash": ("hash(s)", "hash(x, f, y)", "hash(t, h, k, b, p)", "hash(d, e, z, g)",
             "hash(w, m, n, bin)", "hash(u, i, m - n)"),
    "xxhash64": ("xxhash64(s)", "xxhash64(x, f, y)", "xxhash64(t, h, k, b, p)",
                 "xxhash64(d, e, z, g)", "xxhash64(w, m, n, bin)", "xxhash64(repeat(u, 9), i)"),
    "hex": ("hex(b)", "hex(i)", "hex(s)", "hex(bin)"),
    "md5": ("md5(s)", "md5(bin)"),
    "sha": ("sha(s)", "sha(bin)"),
    "sha1": ("sha1(s)", "sha1(u)"),
    "sha2": ("sha2(s, 256)", "sha2(bin, 512)", "sha2(s, 224 + j * 32)"),
    "cidr_match": (
        Case(f"cidr_match({_HOST}, '4.0.0.0/6')", "j BETWEEN 4 AND 7 AND "
             f"{_HOST} IS NOT NULL OR {_HOST} IS NULL AND NULL"),
        Case(f"cidr_match({_HOST}, '9.0.0.0/9', 'fd00::/8', '1.0.0.0/8')",
             f"if({_HOST} IS NULL, NULL, j = 9 AND pmod(i, 256) < 128 OR j = 1)"),
    ),
    "coalesce": ("coalesce(i, j, 0)", "coalesce(s, u)", "coalesce(d, e, b)", "coalesce(xs, ys)",
                 "coalesce(f, x)"),
    "nvl": ("nvl(x, y)", "nvl(w, a)", "nvl(mp, map('a', 1))"),
    "ifnull": ("ifnull(k, b)", "ifnull(s, 'none')"),
    "nvl2": ("nvl2(i, s, u)", "nvl2(s, k, b)"),
    "nullif": ("nullif(j, 7)", "nullif(s, u)", "nullif(d, e)", "nullif(y, 0.0D)"),
    "decode": ("decode(j, 7, 'seven', 3, 'three', 'other')", "decode(u, 'a', d, NULL, 1.5, e)"),
    "if": ("if(i > j, s, u)", "if(p, k, b)", "if(j > 0, 12 DIV j, -1)", "if(isnan(x), xs, ys)"),
    "iff": (Case("iff(p, i, d)", "if(p, i, d)"),),
    "isnull": ("isnull(s)", "isnull(pt.n)", "isnull(xs)"),
    "isnotnull": ("isnotnull(x)", "isnotnull(mp)"),
    "typeof": ("concat(typeof(d), typeof(xs), s)", "concat(typeof(i + b), typeof(m), u)",
               "concat(typeof(pt), typeof(mo), i)"),
}  # fmt: skip

CASES: dict[str, tuple[str | Case, ...]] = {**DATES, **NUMBERS, **TEXTS, **NESTED, **OTHERS}
