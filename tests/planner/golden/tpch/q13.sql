SELECT c_custkey, count(o_orderkey) AS c_count
FROM customer LEFT JOIN orders
  ON c_custkey = o_custkey AND o_ts BETWEEN c_ts AND c_ts + INTERVAL '1' DAY
GROUP BY c_custkey
