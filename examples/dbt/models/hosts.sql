{{ config(materialized='table') }}
SELECT r.host, r.runs, c.connections
FROM {{ ref('runs_by_host') }} r
LEFT JOIN (
  SELECT host, count(*) AS connections FROM {{ source('events', 'connections') }} GROUP BY host) c
  ON c.host = r.host
