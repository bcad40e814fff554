-- name: run_after_download
SELECT p.host, p.account, p.file, p.ts
FROM downloads d JOIN processes p ON p.host = d.host AND p.file = d.file
WHERE p.ts BETWEEN d.ts AND d.ts + INTERVAL '10' MINUTE;

-- name: download_run_connect
SELECT p.host, p.account, p.file, c.port
FROM downloads d
JOIN processes p ON p.host = d.host AND p.file = d.file
JOIN connections c ON c.host = p.host AND c.file = p.file
WHERE p.ts BETWEEN d.ts AND d.ts + INTERVAL '10' MINUTE
  AND c.ts BETWEEN p.ts AND p.ts + INTERVAL '5' MINUTE;

-- name: guessed_password
SELECT s.host, s.account, s.ts, count(*) AS failures
FROM logons s JOIN logons f ON f.host = s.host AND f.account = s.account
WHERE s.success AND NOT f.success AND f.ts BETWEEN s.ts - INTERVAL '10' MINUTE AND s.ts
GROUP BY s.host, s.account, s.ts
HAVING count(*) >= 5;

-- name: outside_logon
SELECT l.host, l.account, l.address, p.command
FROM logons l JOIN processes p ON p.host = l.host
WHERE l.success AND NOT cidr_match(l.address, '10.0.0.0/8')
  AND p.command RLIKE '(?i)-enc(odedcommand)? '
  AND p.ts BETWEEN l.ts AND l.ts + INTERVAL '15' MINUTE;

-- name: first_run
SELECT p.host, p.file, p.account, p.ts
FROM downloads d JOIN processes p ON p.host = d.host AND p.file = d.file
WHERE p.ts BETWEEN d.ts AND d.ts + INTERVAL '10' MINUTE
QUALIFY row_number() OVER (PARTITION BY p.host ORDER BY p.ts) = 1;

-- name: unscanned
SELECT d.host, d.file, d.ts FROM downloads d
WHERE d.file LIKE '%.exe' AND NOT EXISTS (
  SELECT 1 FROM scans s
  WHERE s.host = d.host AND s.file = d.file AND s.ts BETWEEN d.ts AND d.ts + INTERVAL '5' MINUTE);
