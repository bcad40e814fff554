-- DuckDB's words for statements of docs/cookbook.md that differ there.
-- name: sums-of-fixed-windows
SELECT time_bucket(INTERVAL '15' MINUTE, ts) AS begin, country, count(*), sum(amount)
FROM payments GROUP BY begin, country;

-- name: overlapping-windows
SELECT begin, v.site, max(r.celsius)
FROM (
  SELECT *, time_bucket(INTERVAL '30' MINUTE, ts) - n * INTERVAL '30' MINUTE AS begin
  FROM readings, range(2) AS before(n)) r
JOIN devices v ON v.device = r.device
GROUP BY begin, v.site;

-- name: sessions
SELECT visitor, min(ts) AS begin, count(*)
FROM (
  SELECT *, sum(first) OVER (PARTITION BY visitor ORDER BY ts) AS session
  FROM (
    SELECT *, coalesce(ts - lag(ts) OVER (PARTITION BY visitor ORDER BY ts)
      >= INTERVAL '30' MINUTE, true)::INT AS first
    FROM visits WHERE visitor >= 0))
GROUP BY visitor, session;

-- name: medians-and-other-percentiles
SELECT driver, quantile_disc(fare, 0.5)::DOUBLE, quantile_disc(fare, 0.9)::DOUBLE
FROM rides
GROUP BY driver;
