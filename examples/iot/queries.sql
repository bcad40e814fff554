-- name: overheated
SELECT r.device, v.site, r.celsius, r.ts
FROM readings r JOIN devices v ON v.device = r.device
WHERE r.celsius > v.most;

-- name: site_hours
SELECT window.start AS hour, v.site, count(*) AS readings, min(r.celsius) AS least,
  max(r.celsius) AS most
FROM readings r JOIN devices v ON v.device = r.device
GROUP BY window(r.ts, '1 hour'), v.site;

-- name: before_alarm
SELECT a.device, a.code, a.ts, r.celsius
FROM alarms a ASOF LEFT JOIN readings r ON r.device = a.device AND r.ts <= a.ts
WHERE a.code > 0;

-- name: jumps
SELECT device, ts, celsius, jump FROM (
  SELECT device, ts, celsius,
    celsius - lag(celsius) OVER (PARTITION BY device ORDER BY ts) AS jump
  FROM readings)
WHERE jump > 25;

-- name: alarm_after_repair
SELECT p.device, p.ts AS repaired, a.ts AS alarmed, v.site
FROM repairs p JOIN alarms a ON a.device = p.device JOIN devices v ON v.device = p.device
WHERE a.ts BETWEEN p.ts AND p.ts + INTERVAL '1' HOUR;

-- name: unrepaired
SELECT a.device, a.code, a.ts FROM alarms a
WHERE a.code > 0 AND NOT EXISTS (
  SELECT 1 FROM repairs p
  WHERE p.device = a.device AND p.ts BETWEEN a.ts AND a.ts + INTERVAL '2' HOUR);
