-- Silver: readings. What is not JSON, or names no device, time and temperature, is in quarantine instead.
CREATE STREAMING TABLE silver AS
SELECT
  reading.device,
  reading.time,
  reading.temperature,
  partition,
  sequenceNumber
FROM (
  SELECT
    from_json(CAST(body AS STRING), 'device STRING, time TIMESTAMP, temperature DOUBLE') AS reading,
    partition,
    sequenceNumber
  FROM STREAM bronze
)
WHERE reading.device IS NOT NULL AND reading.time IS NOT NULL AND reading.temperature IS NOT NULL
