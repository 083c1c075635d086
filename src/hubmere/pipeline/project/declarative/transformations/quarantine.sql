-- Quarantine: every event of bronze that is not a reading, with all of its columns and with what is wrong.
-- The condition is the opposite of that of silver: each event is in one of the two.
CREATE STREAMING TABLE quarantine AS
SELECT
  * EXCEPT (reading),
  CASE
    WHEN body IS NULL THEN 'the event has no body'
    WHEN reading.device IS NULL AND reading.time IS NULL AND reading.temperature IS NULL THEN 'the body is not a reading'
    WHEN reading.device IS NULL THEN 'the device is missing'
    WHEN reading.time IS NULL THEN 'the time is missing or not a time'
    ELSE 'the temperature is missing or not a number'
  END AS problem
FROM (
  SELECT
    *,
    from_json(CAST(body AS STRING), 'device STRING, time TIMESTAMP, temperature DOUBLE') AS reading
  FROM STREAM bronze
)
WHERE NOT (reading.device IS NOT NULL AND reading.time IS NOT NULL AND reading.temperature IS NOT NULL)
