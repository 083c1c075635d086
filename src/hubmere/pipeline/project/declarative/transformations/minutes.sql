-- Minutes: the readings of each device, minute by minute of the time that the device gave.
-- A minute is closed, and its row written once and for all, when a reading came that is two minutes younger than its
-- end; readings that are later than that are not counted.
CREATE STREAMING TABLE minutes AS
SELECT
  device,
  window.start AS minute,
  count(*) AS readings,
  avg(temperature) AS mean,
  max(temperature) AS highest
FROM STREAM silver WATERMARK time DELAY OF INTERVAL 2 MINUTES
GROUP BY window(time, '1 minute'), device
