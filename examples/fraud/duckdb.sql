-- DuckDB's words where they differ.
-- name: spent_abroad
SELECT time_bucket(INTERVAL '1' HOUR, p.ts) AS hour, p.card, count(*), sum(p.amount)
FROM payments p JOIN cards c ON c.card = p.card
WHERE p.country <> c.home
GROUP BY hour, p.card
HAVING sum(p.amount) > 100;
