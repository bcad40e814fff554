-- DuckDB's words where they differ.
-- name: site_hours
SELECT time_bucket(INTERVAL '1' HOUR, r.ts) AS hour, v.site, count(*), min(r.celsius),
  max(r.celsius)
FROM readings r JOIN devices v ON v.device = r.device
GROUP BY hour, v.site;
