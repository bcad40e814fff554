SELECT p.host, p.account, p.file, p.ts
FROM {{ source('events', 'downloads') }} d
JOIN {{ source('events', 'processes') }} p ON p.host = d.host AND p.file = d.file
WHERE p.ts BETWEEN d.ts AND d.ts + INTERVAL '10' MINUTE
