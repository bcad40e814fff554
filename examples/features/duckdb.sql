-- DuckDB's words where they differ.
-- name: driver_hours
SELECT time_bucket(INTERVAL '1' HOUR, r.ts) AS hour, r.driver, count(*), sum(r.fare), max(r.fare)
FROM rides r
WHERE r.fare > 0
GROUP BY hour, r.driver;
