"""A dedicated MirrorMaker 2 between clusters, with the settings of the manual."""

from pathlib import Path

from conformance.clients import Jars
from conformance.kafka.apache import Program, Service

PAGE = "mirrormaker.md"
_MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
# By default MirrorMaker looks for new groups every ten minutes and copies offsets every minute.
OFTEN = "".join(
    f"{name}=1\n"
    for name in (
        "refresh.topics.interval.seconds",
        "refresh.groups.interval.seconds",
        "emit.checkpoints.interval.seconds",
        "sync.group.offsets.interval.seconds",
        "emit.heartbeats.interval.seconds",
        "sync.topic.configs.interval.seconds",
    )
)


def mirror_maker(folder: Path, settings: str) -> Service:
    """One process with all flows; it is ready when it copies."""
    path = folder / "mm2.properties"
    path.write_text(settings, encoding="utf-8")
    return Service(Program(jars=Jars.KAFKA_4, main=_MAIN, arguments=(str(path),)), folder / "mirror.log")
