"""Compare names and types of output columns with Spark's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch_contract.errors import QueryError
from anabranch_planner.passes import parse_sql
from tests.support.cases.sample_streams import ALL_TYPES, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

U = {"key": "int", "z": "string", "q": "decimal(5,1)"}
STREAMS = {"t": stream("t", ALL_TYPES, "ts"), "u": stream("u", U)}

ITEMS = """
key
round(d, 2)
sqrt(key)
floor(p)
power(key, 2)
replace(name, 'a', 'b')
bin(key)
conv(name, 16, 10)
soundex(name)
xxhash64(name, key)
format_string('%s-%d', name, key)
printf('%5s', name)
overlay(name PLACING 'x' FROM 2 FOR 1)
substring(name FROM 2 FOR 3)
substr(name FROM 2)
lpad(name, 5, '*')
date_trunc('day', ts)
date_format(ts, 'yyyy')
last_day(dt)
timestampdiff(DAY, ts, ts)
split_part(name, ',', 1)
md5(name)
current_timestamp
current_timestamp()
current_date
current_date()
date(ts)
string(key)
int(p)
double(key + 1)
double(key + 1) * 2
now()
regexp_extract(name, '(a)', 1)
concat_ws('-', name, name)
greatest(key, b)
hash(key, name)
dt + 1
T.KEY
t.`a b`
`t`.`Key`
(key)
cast(key as string)
cast((t.key) as string)
key::string
CAST(Key as bigint)
cast(name as decimal(10,2))
cast(ts as date)
cast(key+1 as long)
cast(p+1 as decimal)
cast(cast(key as string) as int)
cast(key as decimal(12,2)) + 1
cast(key as varchar(3))
key + 1
Key+b*2
key + 1 + 2
key - (1 - b)
-key
- -1
-(1)
key - -1
key / 2
key / b
key % 3
key % 1.5
p*p
p+p
p-1
p/2
p/p
p/key
p%3
p+key
p - key
p*b
p+f
p + 1.25
2 * p
w*w
w/w
w+w
w-w
w+1
w*2
w/3
w%p
w*p
b + p
key*1.5
ti + 1.5
ti + sh + key
sh + 1
ti / ti
f + f
f + key
f * d
f * 1.5
d + 1
d % 2
1
1.5
.5
1.
00.10
100.00
-1.5
2147483648
-2147483648
-9223372036854775808
9223372036854775808
'x'
'it''s'
"it's"
'a\\%b'
true
key = 1
key == 1
key <> 1
key != 1
key <=> 1
key < p
key = '1'
f = d
f = p
p = 1.5
dt = '2020-1-2'
ts > '2020-01-01'
ts = tn
ok = 'true'
not ok
! ok
not (ok and key > 1)
ok or key>1
(ok or key>1) and ok
key in (1,2)
key in ('1','2')
key in (1.5, 2)
key not in (1,2)
key between 1 and 3
key not between 1 and 3
name like 'a%'
name not like 'a%'
not name like 'a%'
key is null
key is not null
lower(name)
LOWER(t.name)
UPPER(name)
length(name)
char_length(name)
substring(name, 1, 2)
substr(name, 2)
concat(name, 'a', 'b')
name || 'a' || 'b'
trim(name)
trim(both from name)
abs(-key)
abs(p)
year(dt) * 100 + month(ts)
day(ts)
dayofmonth(dt)
hour(ts)
minute(tn)
second(ts)
coalesce(key, 0)
coalesce(key, b, 1.5)
coalesce(p, 1)
coalesce(p, w, 1)
coalesce(f, 1.5)
coalesce(key, f)
coalesce(null, key)
nvl(key, 1.5)
ifnull(p, 0)
if(ok, key, b)
case when ok then 1 else 2 end
case when ok then key end
case when ok then key else p end
case when ok then w else b end
case when ok then null else key end
case key when 1 then 'a' when 2 then 'b' else name end
key + null
key as k2
key k3
1e3 as thousand
1L as one
date '2020-01-01' as day_
ts + interval '1' hour as later
tn - interval '1:30' hour to minute as earlier
dt + interval '1' day as next_day
dt - interval '2' week as two_weeks_before
interval '3 days' + dt as three_days_later
dt + (interval '1' day + interval '2' day) as days_added
dt + interval '24' hour as a_day_in_hours
dt + interval '1' day + interval '2' hour as day_and_hours
date'2020-01-31' + interval '1' month as a_month_later
date'2020-01-31' - interval '1-1' year to month as earlier_year
timestamp'2020-03-31 10:00:00' - interval '1' month as a_month_before
(key, name) = (1, 'a') as row_equal
(key, name) in ((1, 'a'), (2, 'b')) as row_in
timestamp '2020-01-01 00:00:00' as moment
x'ff' as bytes
ts - ts
dt - dt
dt - ts
ts + interval 1 hour
ts - interval '1 02:03:04.5' day to second
interval 1 hour + ts
ts + interval '1' month
ts + interval 3 weeks
dt + interval 1 day
dt - interval '2' week
dt + interval 1 hour
dt - interval 14 months
dt + (dt - dt)
ts + (ts - ts)
ts + ((ts - ts) * 2 - interval 5 minutes)
(ts - ts) / 2
3 * (ts - ts)
key * interval '1' month
-(ts - ts)
-interval '1' hour
interval '90' minute
interval '1-2' year to month
interval '1 day 2 hours'
interval '1.5' second
ts - interval 1 hour > ts
hour(ts + interval 1 hour)
date_format(ts - interval '1:30' hour to minute, 'HH')
make_dt_interval(1, 2, 3, 4.5)
make_ym_interval(key, 2)
abs(ts - ts)
cast(ts - ts as string)
case when ok then ts - ts else interval 1 day end
coalesce(ts - ts, interval 1 hour)
typeof(interval 1 hour) as kind
extract(day from ts - ts) as days
extract(second from ts - ts) as seconds
cast(ts as timestamp_ntz)
cast('2020-01-01' as timestamp_ntz) as naive
timestamp_ntz '2020-01-01 00:00:00' as naive_too
timestamp_ltz '2020-01-01 00:00:00' as zoned
cast(cast(ts as timestamp_ntz) as timestamp_ltz)
cast(ts as timestamp_ntz) - ts
cast(ts as timestamp_ntz) + interval 1 day
""".strip().splitlines()

QUERIES = (
    "SELECT * FROM t JOIN u USING (key)",
    "SELECT u.* FROM t JOIN u USING (KEY)",
    "SELECT KEY, u.z FROM t JOIN u USING (key)",
    "SELECT u.q * t.p, Z FROM t, u WHERE t.key = u.key",
    "SELECT A.key, c.q AS q2 FROM u a JOIN t USING (key) JOIN u C USING (key)",
    "SELECT count(*), sum(p), avg(key), skewness(d), mode(name), max_by(name, key) FROM t",
    "SELECT corr(key, b), covar_samp(d, key), regr_slope(key, b), regr_intercept(d, d) FROM t",
    "SELECT regr_r2(key, b), regr_sxx(d, key), regr_sxy(key, b), regr_syy(d, p) FROM t",
)

#: Spark casts these implicitly; here they need a cast (or a name), and are refused.
REFUSED = (
    "name = key",
    "dt = ts",
    "key + '1'",
    "coalesce(name, key)",
    "lower(key)",
    "1e3",
    "ok and ok and ok",
    "date '2020-01-01'",
    "interval 1 year 2 months",
    "ts - '2020-01-01'",
    "extract(day from ts - ts)",
)


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    for name, columns in (("t", ALL_TYPES), ("u", U)):
        schema = ", ".join(f"`{c}` {kind}" for c, kind in columns.items())
        spark.createDataFrame([], schema).createOrReplaceTempView(name)
    return spark


def in_spark(session: SparkSession, sql: str) -> list[tuple[str, str]]:
    return [(f.name, f.dataType.simpleString()) for f in session.sql(sql).schema.fields]


def in_planner(sql: str) -> list[tuple[str, str]]:
    query = parse_sql("q", sql, STREAMS)
    return [(o.name, str(o.expr.type)) for o in (query.view or query).projection]


@pytest.mark.spark
def test_output_columns_are_those_of_spark(session: SparkSession) -> None:
    queries = [*(f"SELECT {item} FROM t" for item in ITEMS), *QUERIES]
    found = {sql: in_planner(sql) for sql in queries}
    expected = {sql: in_spark(session, sql) for sql in queries}
    assert found == expected


@pytest.mark.spark
def test_what_is_refused_here_means_something_to_spark(session: SparkSession) -> None:
    for item in REFUSED:
        sql = f"SELECT {item} FROM t"
        assert in_spark(session, sql)
        with pytest.raises(QueryError):
            parse_sql("q", sql, STREAMS)
