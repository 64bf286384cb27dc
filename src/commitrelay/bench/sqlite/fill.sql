WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :events)
INSERT INTO @event (aggregate_type, aggregate_id, event_type, payload)
SELECT :aggregate_type, CAST(n % :keys AS TEXT), 'OrderPaid',
       CAST('{"number": ' || n || ', "filling": "' || :filling || '"}' AS BLOB)
FROM number;
