{{ config(query={'title': 'Runs that open a connection', 'tags': ['alerts']}) }}
SELECT r.host, r.file, c.port
FROM {{ ref('runs') }} r
JOIN {{ source('events', 'connections') }} c ON c.host = r.host AND c.file = r.file
