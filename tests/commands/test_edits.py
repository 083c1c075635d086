"""`--set`, `--add` and `--remove` of `az` on resources of a running node."""

import pytest

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node


def test_properties_of_a_hub_are_set(node: Node, hub: str) -> None:
    """With or without `properties.`; days replace the hours that the node returns beside them."""
    update = ("eventhub", "update", "-n", hub)

    days = at(node, *update, "--set", "messageRetentionInDays=3", "--query", "retentionDescription").json
    hours = at(
        node, *update, "--set", "properties.retentionDescription.retentionTimeInHours=5", "status=SendDisabled",
        "--query", "[retentionDescription.retentionTimeInHours, status]",
    ).json  # fmt: skip
    text = at(node, *update, "--set", "userMetadata=5", "--force-string", "--query", "userMetadata").json
    none = at(node, *update, "--remove", "userMetadata", "--query", "userMetadata").json

    assert days["retentionTimeInHours"] == 72
    assert hours == [5, "SendDisabled"]
    assert (text, none) == ("5", "")


def test_a_property_that_the_node_does_not_return_yet_is_set(node: Node, hub: str) -> None:
    """A hub without Capture has no description of it."""
    edits = ("captureDescription.enabled=true", "captureDescription.intervalInSeconds=60")

    made = at(node, "eventhub", "update", "-n", hub, "--set", *edits, "--query", "captureDescription").json

    assert (made["enabled"], made["intervalInSeconds"]) == (True, 60)


def test_edits_and_options_change_a_namespace_together(node: Node, namespace: str) -> None:
    """Tags keep their names; values that nobody names stay as they are."""
    update = ("namespace", "update", "-n", namespace)
    at(node, *update, "--tags", "team=blue", "stage=test")

    changed = at(node, *update, "--set", "sku.capacity=3", "tags.owner=5", "--remove", "tags.stage",
                 "--minimum-tls-version", "1.3", "--query", "[sku, tags, minimumTlsVersion]").json  # fmt: skip
    cleared = at(node, *update, "--set", "tags=None", "--query", "tags").json

    assert changed == [
        {"name": "Standard", "tier": "Standard", "capacity": 3},
        {"team": "blue", "owner": "5"},
        "1.3",
    ]
    assert cleared == {}


def test_elements_of_a_list_are_added_and_removed(node: Node, hub: str) -> None:
    """The rights of a rule, whose keys stay the same."""
    rule = ("eventhub", "authorization-rule")
    place = ("--eventhub-name", hub, "-n", "edited")
    at(node, *rule, "create", *place, "--rights", "Send")
    key = at(node, *rule, "keys", "list", *place, "--query", "primaryKey").json

    added = at(node, *rule, "update", *place, "--add", "rights", "Listen", "--query", "rights").json
    removed = at(node, *rule, "update", *place, "--remove", "rights", "0", "--query", "rights").json

    assert (added, removed) == (["Send", "Listen"], ["Listen"])
    assert at(node, *rule, "keys", "list", *place, "--query", "primaryKey").json == key


def test_objects_of_a_list_are_added_selected_and_removed(node: Node, namespace: str) -> None:
    """Names with values make one object; `[name=value]` selects it."""
    update = ("namespace", "network-rule-set", "update", "--namespace-name", namespace)
    rules = ("--query", "[ipRules[].ipMask, defaultAction]")

    added = at(node, *update, "--add", "ipRules", "ipMask=10.0.0.0/8", "action=Allow",
               "--add", "ipRules", '{"ipMask": "10.9.0.0/16"}', "--set", "defaultAction=Deny", *rules).json  # fmt: skip
    changed = at(node, *update, "--set", "ipRules[ipMask=10.0.0.0/8].ipMask=127.0.0.0/8", *rules).json
    emptied = at(node, *update, "--set", "defaultAction=Allow", "--remove", "ipRules", *rules).json

    assert added == [["10.0.0.0/8", "10.9.0.0/16"], "Deny"]
    assert changed == [["127.0.0.0/8", "10.9.0.0/16"], "Deny"]
    assert emptied == [[], "Allow"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("--set", "statu=Active"), "--set: there is no 'statu'; there are partitionCount, "),
        (("--set", "foo.bar=1"), "--set: there is no 'foo' of 'foo.bar'; there are partitionCount, "),
        (("--set", "status"), "--set: 'status' is not of the form path=value\n"),
        (("--set", ".=1"), "--set: '.' names no property\n"),
        (("--set", "=Active"), "--set: '=Active' is not of the form path=value\n"),
        (("--set",), "--set: it needs a value\n"),
        (("--set", "status[0]=1"), "--set: '[0]' of 'status[0]' is not in a list\n"),
        (("--set", "status.x=1"), "--set: 'x' of 'status.x' is not in an object\n"),
        (("--set", "partitionIds[9]=1"), "--set: there is no '[9]' of 'partitionIds[9]'; the list has "),
        (("--set", "partitionIds[a=1]=1"), "--set: '[a=1]' of 'partitionIds[a=1]' selects 0 elements of the list"),
        (("--add", "status", "x"), "--add: 'status' is not a list\n"),
        (("--remove", "nothing"), "--remove: there is no 'nothing'; there are partitionCount, "),
        (("--remove", "partitionIds", "9"), "--remove: there is no 'partitionIds 9'; the list has "),
        (("--remove", "partitionIds", "first"), "--remove: 'first' is not the index of an element\n"),
        (("--remove", "partitionIds", "0", "1"), "--remove: expected a path, and the index of the element"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_edit_that_does_not_fit_is_wrong_usage(node: Node, hub: str, edit: tuple[str, ...], message: str) -> None:
    """Nothing is sent, and the error names what the resource has."""
    run = at(node, "eventhub", "update", "-n", hub, *edit)

    assert run.code == Exit.USAGE
    assert run.err.startswith(f"hubmere: {message}")


def test_a_value_that_the_node_refuses_changes_nothing(node: Node, hub: str) -> None:
    """The node checks values, not the command."""
    run = at(node, "eventhub", "update", "-n", hub, "--set", "partitionCount=many", "userMetadata=new")

    assert (run.code, "partitionCount" in run.err) == (Exit.FAILED, True)
    assert at(node, "eventhub", "show", "-n", hub, "--query", "userMetadata").json == ""
