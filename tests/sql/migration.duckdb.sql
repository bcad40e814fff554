-- DuckDB's words for statements of docs/migration.md that differ there.
-- name: aggregate-after-a-join
SELECT time_bucket(INTERVAL '2' HOUR, a.ts) AS begin, v.site, count(*)
FROM alarms a JOIN devices v ON v.device = a.device
GROUP BY begin, v.site;

-- name: window-aggregate
SELECT time_bucket(INTERVAL '30' MINUTE, ts) AS begin, begin + INTERVAL '30' MINUTE, country,
  count(*), sum(amount)
FROM payments
GROUP BY begin, country;

-- name: temporal-join
SELECT r.id, r.driver, s.state
FROM rides r ASOF LEFT JOIN driver_states s ON s.driver = r.driver AND s.ts <= r.ts
WHERE r.fare > 0;
