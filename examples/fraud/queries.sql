-- name: paid_from_new_device
SELECT p.id, p.card, p.amount
FROM card_logins l JOIN cards c ON c.customer = l.customer JOIN payments p ON p.card = c.card
WHERE l.new_device AND p.amount > 200 AND p.ts BETWEEN l.ts AND l.ts + INTERVAL '10' MINUTE;

-- name: paid_after_move
SELECT p.id, p.card, p.amount
FROM address_changes a JOIN cards c ON c.customer = a.customer JOIN payments p ON p.card = c.card
WHERE p.amount > 200 AND p.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR;

-- name: two_countries
SELECT a.card, a.id AS first, b.id AS second, a.country AS here, b.country AS there
FROM payments a JOIN payments b ON b.card = a.card
WHERE a.country <> b.country AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '30' MINUTE;

-- name: unconfirmed
SELECT p.id, p.card, p.amount FROM payments p
WHERE p.amount > 400 AND NOT EXISTS (
  SELECT 1 FROM confirmations f
  WHERE f.payment = p.id AND f.ts BETWEEN p.ts AND p.ts + INTERVAL '15' MINUTE);

-- name: spent_abroad
SELECT window.start AS hour, p.card, count(*) AS payments, sum(p.amount) AS spent
FROM payments p JOIN cards c ON c.card = p.card
WHERE p.country <> c.home
GROUP BY window(p.ts, '1 hour'), p.card
HAVING sum(p.amount) > 100;
