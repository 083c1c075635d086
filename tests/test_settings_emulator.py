"""The official emulator's Config.json is accepted unchanged."""

import json
from typing import Any

import pytest

from hubmere.model.entity import CaptureEncoding, Rights
from hubmere.model.errors import InvalidArgument, Refusal
from hubmere.settings.emulator import parse_emulator_config
from hubmere.settings.hubs import read_emulator_hubs
from hubmere.settings.problems import Problem

# The sample of the reference (service 9).
SAMPLE = """
{"UserConfig":{"NamespaceConfig":[{"Type":"EventHub","Name":"emulatorNs1",
  "Entities":[{"Name":"eh1","PartitionCount":2,"ConsumerGroups":[{"Name":"cg1"}]}]}],
 "LoggingConfig":{"Type":"File"}}}
"""


def a_config(**entity: Any) -> dict[str, Any]:
    hub = {"Name": "eh1", "PartitionCount": 2, "ConsumerGroups": [{"Name": "cg1"}], **entity}
    return {"UserConfig": {"NamespaceConfig": [{"Entities": [hub]}], "LoggingConfig": {"Type": "Console"}}}


def test_sample_gives_its_namespace_hub_and_group() -> None:
    """Conformance: Management 40."""
    (namespace,) = parse_emulator_config(json.loads(SAMPLE))

    (hub,) = namespace.hubs
    assert namespace.name == "emulatorNs1"
    assert (hub.name, hub.spec.partition_count, hub.groups) == ("eh1", 2, ("cg1",))


def test_namespace_name_and_type_are_optional() -> None:
    """The emulator does the same since version 1.2.4."""
    (namespace,) = parse_emulator_config(a_config())

    assert namespace.name == "emulatorNs1"


def test_partition_count_may_be_a_text() -> None:
    """Older samples have it as a text."""
    (namespace,) = parse_emulator_config(a_config(PartitionCount="7"))

    assert namespace.hubs[0].spec.partition_count == 7


def test_more_hubs_and_namespaces_than_the_emulator_takes_are_read() -> None:
    """Users of the emulator need more."""
    hubs = [{"Name": f"eh{number}", "PartitionCount": 1} for number in range(50)]
    config = {
        "UserConfig": {"NamespaceConfig": [{"Name": "first1", "Entities": hubs}, {"Name": "second", "Entities": hubs}]}
    }

    namespaces = parse_emulator_config(config)

    assert [(namespace.name, len(namespace.hubs)) for namespace in namespaces] == [("first1", 50), ("second", 50)]


def test_extra_keys_bring_retention_rules_and_capture() -> None:
    """One file has everything that a development machine needs."""
    rule = {"Name": "send", "Rights": ["Send"], "PrimaryKey": "one"}
    capture = {"IntervalInSeconds": 60, "Encoding": "Parquet", "Container": "c", "SkipEmptyArchives": True}
    config = a_config(MessageRetentionInDays=2, AuthorizationRules=[rule], Capture=capture, UserMetadata="m")

    (namespace,) = parse_emulator_config(config)

    hub = namespace.hubs[0]
    assert (hub.spec.retention_hours, hub.spec.user_metadata) == (48, "m")
    assert (hub.rules[0].name, hub.rules[0].rights, hub.rules[0].primary_key) == ("send", Rights.SEND, "one")
    assert hub.rules[0].secondary_key is None
    assert hub.spec.capture is not None
    assert (hub.spec.capture.interval_s, hub.spec.capture.encoding) == (60, CaptureEncoding.PARQUET)
    assert (hub.spec.capture.destination.container, hub.spec.capture.skip_empty) == ("c", True)


def test_retention_in_hours_overrides_days() -> None:
    """The same rule applies to every API."""
    (namespace,) = parse_emulator_config(a_config(MessageRetentionInDays=2, RetentionTimeInHours=3))

    assert namespace.hubs[0].spec.retention_hours == 3


ENTITY = "UserConfig.NamespaceConfig[0].Entities[0]"
HUB = f"{ENTITY}('eh1')"


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ([], "Config.json"),
        ({}, "UserConfig"),
        ({"UserConfig": 1}, "UserConfig"),
        ({"UserConfig": {}}, "UserConfig.NamespaceConfig"),
        ({"UserConfig": {"NamespaceConfig": {}}}, "UserConfig.NamespaceConfig"),
        ({"UserConfig": {"NamespaceConfig": []}}, "UserConfig.NamespaceConfig"),
        ({"UserConfig": {"NamespaceConfig": [{}]}}, "UserConfig.NamespaceConfig[0].Entities"),
        ({"UserConfig": {"NamespaceConfig": [{"Entities": []}]}}, "UserConfig.NamespaceConfig[0].Entities"),
        ({"UserConfig": {"NamespaceConfig": [{"Type": "Queue", "Entities": []}]}}, "NamespaceConfig[0].Type"),
        ({"UserConfig": {"NamespaceConfig": [{"Name": 5, "Entities": []}]}}, "NamespaceConfig[0].Name"),
        ({"UserConfig": {"NamespaceConfig": [{"Name": "x", "Entities": []}]}}, "NamespaceConfig[0].Name"),
        ({"UserConfig": {"NamespaceConfig": [], "LoggingConfig": {"Type": "Paper"}}}, "UserConfig.LoggingConfig.Type"),
        (a_config(Name="-x"), f"{ENTITY}.Name"),
        (a_config(ConsumerGroups=[{"Name": "-x"}]), f"{HUB}.ConsumerGroups[0].Name"),
        (a_config(PartitionCount="many"), f"{HUB}.PartitionCount"),
        (a_config(PartitionCount=True), f"{HUB}.PartitionCount"),
        (a_config(ConsumerGroups=[{}]), f"{HUB}.ConsumerGroups[0].Name"),
        (a_config(ConsumerGroups="cg1"), f"{HUB}.ConsumerGroups"),
        (a_config(ConsumerGroups=[{"Name": "$default"}]), f"{HUB}.ConsumerGroups[0].Name"),
        (a_config(ConsumerGroups=[{"Name": "a"}, {"Name": "A"}]), f"{HUB}.ConsumerGroups"),
        (a_config(AuthorizationRules=[{"Name": "r"}]), f"{HUB}.AuthorizationRules[0].Rights"),
        (a_config(AuthorizationRules=[{"Name": "r", "Rights": ["Manage"]}]), "Manage"),
        (a_config(Capture={"Encoding": "Csv"}), f"{HUB}.Capture.Encoding"),
        (a_config(Capture={"SkipEmptyArchives": "no"}), f"{HUB}.Capture.SkipEmptyArchives"),
    ],
)
def test_error_is_reported_by_its_path(config: object, named: str) -> None:
    """Users of the emulator need clear errors."""
    with pytest.raises(Refusal) as refusal:
        parse_emulator_config(config)

    assert named in refusal.value.text()


def test_missing_key_is_reported_in_plain_words() -> None:
    """The line at the start names the place of the key."""
    problems: list[Problem] = []
    hub = {"PartitionCount": 1, "ConsumerGroups": [{"Nme": "billing"}], "Name": "orders"}

    read_emulator_hubs({"UserConfig": {"NamespaceConfig": [{"Entities": [hub]}]}}, "file c.json", problems)

    place = "UserConfig.NamespaceConfig[0].Entities[0]('orders').ConsumerGroups[0].Name"
    assert [str(problem) for problem in problems] == [f"{place}: missing; expected a value"]


def test_missing_name_is_reported() -> None:
    """The hub has no name."""
    config = a_config()
    del config["UserConfig"]["NamespaceConfig"][0]["Entities"][0]["Name"]

    with pytest.raises(InvalidArgument) as refusal:
        parse_emulator_config(config)

    assert refusal.value.name == f"{ENTITY}.Name"
