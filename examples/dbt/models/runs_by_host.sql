SELECT host, count(*) AS runs, count(DISTINCT file) AS files FROM {{ ref('runs') }} GROUP BY host
