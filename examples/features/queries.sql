-- name: rated_rides
SELECT r.id, r.driver, r.fare, i.tier, g.stars
FROM rides r JOIN ratings g ON g.ride = r.id JOIN riders i ON i.rider = r.rider;

-- name: driver_hours
SELECT window.start AS hour, r.driver, count(*) AS rides, sum(r.fare) AS fares, max(r.fare) AS most
FROM rides r
WHERE r.fare > 0
GROUP BY window(r.ts, '1 hour'), r.driver;

-- name: recent_fares
SELECT id, driver, ts, sum(fare) OVER (
  PARTITION BY driver ORDER BY ts ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING) AS fares
FROM rides
WHERE fare > 0;

-- name: state_at_ride
SELECT r.id, r.driver, s.state
FROM rides r ASOF LEFT JOIN driver_states s ON s.driver = r.driver AND s.ts <= r.ts
WHERE r.fare > 0;

-- name: training_set
SELECT r.id, g.stars AS label, count(*) AS earlier, sum(h.stars) AS earlier_stars
FROM rides r
JOIN ratings g ON g.ride = r.id
JOIN rides e ON e.driver = r.driver
JOIN ratings h ON h.ride = e.id
WHERE e.ts < r.ts AND h.ts < r.ts AND e.ts >= r.ts - INTERVAL '8' HOUR
GROUP BY r.id, g.stars;
