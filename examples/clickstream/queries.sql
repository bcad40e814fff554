-- name: last_touch
SELECT s.id, s.amount, v.campaign
FROM purchases s ASOF LEFT JOIN visits v ON v.visitor = s.visitor AND v.ts <= s.ts
WHERE s.amount > 0;

-- name: first_touch
SELECT s.id, s.amount, v.campaign, v.ts AS visited
FROM purchases s JOIN visits v ON v.visitor = s.visitor
WHERE v.ts BETWEEN s.ts - INTERVAL '6' HOUR AND s.ts
QUALIFY row_number() OVER (PARTITION BY s.id ORDER BY v.ts) = 1;

-- name: influenced_revenue
SELECT c.channel, count(DISTINCT s.id) AS purchases, sum(s.amount) AS amount
FROM purchases s JOIN visits v ON v.visitor = s.visitor JOIN campaigns c ON c.campaign = v.campaign
WHERE v.ts BETWEEN s.ts - INTERVAL '6' HOUR AND s.ts
GROUP BY c.channel;

-- name: funnel
SELECT v.campaign, count(DISTINCT v.visitor) AS visitors, count(DISTINCT s.id) AS purchases
FROM visits v
JOIN carts k ON k.visitor = v.visitor AND k.ts BETWEEN v.ts AND v.ts + INTERVAL '1' HOUR
JOIN purchases s ON s.visitor = k.visitor AND s.product = k.product
  AND s.ts BETWEEN k.ts AND k.ts + INTERVAL '1' HOUR
GROUP BY v.campaign;

-- name: abandoned
SELECT k.visitor, k.product, k.ts FROM carts k
WHERE k.product >= 0 AND NOT EXISTS (
  SELECT 1 FROM purchases s
  WHERE s.visitor = k.visitor AND s.product = k.product
    AND s.ts BETWEEN k.ts AND k.ts + INTERVAL '1' HOUR);
