-- DuckDB's words where they differ.
-- name: outside_logon
SELECT l.host, l.account, l.address, p.command
FROM logons l JOIN processes p ON p.host = l.host
WHERE l.success AND NOT starts_with(l.address, '10.')
  AND regexp_matches(p.command, '(?i)-enc(odedcommand)? ')
  AND p.ts BETWEEN l.ts AND l.ts + INTERVAL '15' MINUTE;
