"""A hub with captured files in the folder of a node."""

import io
from pathlib import Path

from hubmere.model.entity import CaptureEncoding
from hubmere.pipeline.capture.files.content import content_of
from hubmere.pipeline.decode import visible_batches
from hubmere.records.records import Record
from pipeline.batches import NOW_MS, fetched, kafka_batch
from portal.browser.visitor import Visitor

ARCHIVED = "archived"
_MINUTE = "2023/11/14/22/13"
# The Avro file, in the namespace that a node has by default.
FILE = f"hubmere/{ARCHIVED}/0/{_MINUTE}/20.avro"


def add_captured_files(visitor: Visitor, folder: Path, count: int = 250) -> None:
    """Create the hub, with an Avro file of its first partition and a Parquet file of its second."""
    described = {"captureDescription": {"enabled": True}, "partitionCount": 2}
    visitor.arm("PUT", f"eventhubs/{ARCHIVED}", {"properties": described})
    for partition, (encoding, extension) in enumerate(
        ((CaptureEncoding.AVRO, "avro"), (CaptureEncoding.PARQUET, "parquet"))
    ):
        name = f"{visitor.node.namespace}/{ARCHIVED}/{partition}/{_MINUTE}/2{partition}.{extension}"
        sink = io.BytesIO()
        content = content_of(encoding, sink, name, "f00/0/0-5", partition)
        records = [
            Record(number, NOW_MS, f"device-{number}".encode(), b'{"reading": %d}' % number, (("unit", b"celsius"),))
            for number in range(count)
        ]
        for batch in visible_batches(fetched(kafka_batch(records)), 0, 1 << 40):
            content.add(batch, partition, 0, 1 << 40)
        content.close()
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(sink.getvalue())
