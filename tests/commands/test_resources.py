"""Every verb of `az eventhubs` on resources of a running node."""

import pytest

from commands.runner import at
from hubmere.cli.exit_codes import Exit
from hubmere.testing import Node

# --- namespaces ------------------------------------------------------------------------------------------------------


def test_namespace_is_created_changed_and_deleted(node: Node) -> None:
    """Several values may follow one flag, as with `az`."""
    created = at(
        node, "namespace", "create", "-n", "lifetime", "--sku", "standard", "--capacity", "2", "-l", "westeurope",
        "--tags", "a=b", "c=d", "--enable-auto-inflate", "--maximum-throughput-units", "5", "-o", "json",
    ).json  # fmt: skip
    updated = at(node, "namespace", "update", "-n", "lifetime", "--enable-auto-inflate", "false", "-o", "json").json
    shown = at(node, "namespace", "show", "-n", "lifetime", "-g", "rg", "-o", "json").json
    deleted = at(node, "namespace", "delete", "-n", "lifetime")

    assert (created["sku"]["capacity"], created["location"], created["tags"]) == (2, "westeurope", {"a": "b", "c": "d"})
    assert created["isAutoInflateEnabled"] is True
    assert (updated["isAutoInflateEnabled"], updated["sku"]["capacity"]) == (False, 2)
    assert "/resourceGroups/rg/" in shown["id"]
    assert (deleted.code, deleted.out) == (Exit.OK, "")
    assert at(node, "namespace", "show", "-n", "lifetime").code == Exit.NOT_FOUND


def test_namespaces_are_listed_in_columns(node: Node, namespace: str) -> None:
    """The table has a heading, a line below it, and one line for each namespace."""
    heading, rule, *rows = at(node, "namespace", "list", "-o", "table").lines

    assert heading.split() == ["Name", "Sku", "Capacity", "Status", "Endpoint"]
    assert set(rule) == {"-", " "}
    assert {row.split()[0] for row in rows} >= {node.namespace, namespace}


def test_own_namespace_is_the_default(node: Node) -> None:
    """Most nodes have only one."""
    shown = at(node, "namespace", "show", "-o", "table").lines

    assert shown[0].split() == ["name", node.namespace]


def test_name_is_reported_as_available_or_not(node: Node) -> None:
    """A script checks it before it creates something."""
    answers = [at(node, "namespace", "exists", "-n", name, "-o", "json").json for name in (node.namespace, "free-name")]

    assert [answer["nameAvailable"] for answer in answers] == [False, True]


# --- rules and keys --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["namespace", "eventhub"])
def test_authorization_rule_exists_on_namespace_and_hub(node: Node, hub: str, scope: str) -> None:
    """The verbs are the same on both; connection strings of a hub's rule name the hub."""
    place = ("--eventhub-name", hub) if scope == "eventhub" else ()
    verbs = (scope, "authorization-rule")
    end = (*place, "-n", "reader", "-o", "json")

    created = at(node, *verbs, "create", *end, "--rights", "Listen").json
    updated = at(node, *verbs, "update", *end, "--rights", "Send", "Listen").json
    shown = at(node, *verbs, "show", *end).json
    names = {rule["name"] for rule in at(node, *verbs, "list", *place, "-o", "json").json}
    keys = at(node, *verbs, "keys", "list", *end).json
    renewed = at(node, *verbs, "keys", "renew", *end, "--key", "PrimaryKey").json
    given = at(node, *verbs, "keys", "renew", *end, "--key", "secondarykey", "--key-value", "mine").json
    deleted = at(node, *verbs, "delete", *place, "-n", "reader")

    assert created["rights"] == ["Listen"]
    assert sorted(updated["rights"]) == sorted(shown["rights"]) == ["Listen", "Send"]
    assert "reader" in names
    assert (f"EntityPath={hub}" in keys["primaryConnectionString"]) is (scope == "eventhub")
    assert (renewed["primaryKey"] != keys["primaryKey"], renewed["secondaryKey"]) == (True, keys["secondaryKey"])
    assert given["secondaryKey"] == "mine"
    assert deleted.code == Exit.OK


def test_manage_includes_the_rights_that_it_needs(node: Node, hub: str) -> None:
    """The service refuses Manage alone."""
    place = ("--eventhub-name", hub, "-n", "boss")

    rule = at(node, "eventhub", "authorization-rule", "create", *place, "--rights", "Manage", "-o", "json").json

    assert sorted(rule["rights"]) == ["Listen", "Manage", "Send"]


def test_root_keys_are_shown_by_a_short_command(node: Node, namespace: str) -> None:
    """New users need them first."""
    listed = at(node, "keys", "list", "--namespace-name", namespace, "-o", "table").lines
    renewed = at(node, "keys", "renew", "--namespace-name", namespace, "--key", "SecondaryKey", "-o", "table").lines

    assert listed[0].split() == ["keyName", "RootManageSharedAccessKey"]
    assert (listed[1] == renewed[1], listed[2] == renewed[2]) == (True, False)


# --- network ---------------------------------------------------------------------------------------------------------


def test_network_rules_are_added_changed_and_removed(node: Node, namespace: str) -> None:
    """The rule set is written as a whole; each verb keeps the other rules."""
    verbs = ("namespace", "network-rule-set")
    end = ("--namespace-name", namespace, "-o", "json")

    at(node, *verbs, "ip-rule", "add", *end, "--ip-address", "10.1.0.0/16", "--action", "Allow")
    at(node, *verbs, "ip-rule", "add", *end, "--ip-address", "127.0.0.1")
    at(node, *verbs, "ip-rule", "add", *end, "--ip-address", "127.0.0.1")
    at(node, *verbs, "virtual-network-rule", "add", *end, "--subnet", "/subnets/one")
    updated = at(node, *verbs, "update", *end, "--default-action", "deny", "-t", "true").json
    removed = at(node, *verbs, "ip-rule", "remove", *end, "--ip-address", "10.1.0.0/16").json
    gone = at(node, *verbs, "virtual-network-rule", "remove", *end, "--subnet", "/subnets/one").json
    (listed,) = at(node, *verbs, "list", *end).json

    rules = updated
    assert [rule["ipMask"] for rule in rules["ipRules"]] == ["10.1.0.0/16", "127.0.0.1"]
    assert (rules["defaultAction"], rules["trustedServiceAccessEnabled"]) == ("Deny", True)
    assert [rule["subnet"]["id"] for rule in rules["virtualNetworkRules"]] == ["/subnets/one"]
    assert [rule["ipMask"] for rule in removed["ipRules"]] == ["127.0.0.1"]
    assert removed["defaultAction"] == "Deny"
    assert gone["virtualNetworkRules"] == []
    assert listed == gone == at(node, *verbs, "show", *end).json


def test_network_rules_are_accepted_in_the_form_of_az(node: Node, namespace: str) -> None:
    """Scripts for azure-cli 2.91.0 give `--ip-rule` and `--subnet` with keys, and the namespace by `-n`."""
    verbs = ("namespace", "network-rule-set")
    end = ("-n", namespace, "-o", "json")
    two = ("--ip-rule", "ip-address=10.1.0.0/16", "action=Allow", "--ip-rule", "ip-address=10.2.0.0/16")
    subnets = ("--subnet", "id=/subnets/one", "ignore-missing-endpoint=true", "--subnet", "id=/subnets/two")

    added = at(node, *verbs, "ip-rule", "add", *two, *end).json
    removed = at(node, *verbs, "ip-rule", "remove", "--ip-rule", "ip-address=10.1.0.0/16", *end).json
    joined = at(node, *verbs, "virtual-network-rule", "add", *subnets, *end).json
    left = at(node, *verbs, "virtual-network-rule", "remove", "--subnet", "id=/subnets/two", *end).json

    assert [rule["ipMask"] for rule in added["ipRules"]] == ["10.1.0.0/16", "10.2.0.0/16"]
    assert [(rule["ipMask"], rule["action"]) for rule in removed["ipRules"]] == [("10.2.0.0/16", "Allow")]
    assert [
        (rule["subnet"]["id"], rule["ignoreMissingVnetServiceEndpoint"]) for rule in joined["virtualNetworkRules"]
    ] == [("/subnets/one", True), ("/subnets/two", False)]
    assert [rule["subnet"]["id"] for rule in left["virtualNetworkRules"]] == ["/subnets/one"]


@pytest.mark.parametrize(
    ("group", "arguments"),
    [
        ("ip-rule", ()),
        ("ip-rule", ("--ip-rule", "action=Allow")),
        ("ip-rule", ("--ip-rule", "ip-address=10.1.0.0/16", "action=Deny")),
        ("virtual-network-rule", ("--subnet", "ignore-missing-endpoint=true")),
    ],
)
def test_incomplete_network_rule_is_wrong_usage(
    node: Node, namespace: str, group: str, arguments: tuple[str, ...]
) -> None:
    """Nothing is written."""
    run = at(node, "namespace", "network-rule-set", group, "add", "-n", namespace, *arguments)

    assert (run.code, run.err.startswith(("hubmere: a rule is ", "hubmere: give a rule: "))) == (Exit.USAGE, True)
    assert at(node, "namespace", "network-rule-set", "show", "-n", namespace).json["ipRules"] == []


def test_removing_an_unknown_network_rule_is_reported_and_no_failure(node: Node, namespace: str) -> None:
    """As with `az`: cleanup scripts run twice. A typing error in an address does not look like a removed rule."""
    rules = ("namespace", "network-rule-set", "ip-rule")
    kept = at(node, *rules, "add", "--namespace-name", namespace, "--ip-address", "10.1.1.1")

    both = ("--ip-rule", "ip-address=10.9.9.9", "--ip-rule", "ip-address=10.1.1.1")

    run = at(node, *rules, "remove", "--namespace-name", namespace, *both)

    assert kept.code == Exit.OK
    assert (run.json["ipRules"], run.err) == ([], "hubmere: there is no rule for 10.9.9.9; there are 10.1.1.1\n")


# --- application groups ----------------------------------------------------------------------------------------------


def test_application_group_is_created_changed_and_deleted(node: Node) -> None:
    """The options are those of `az eventhubs namespace application-group`; policies are added and removed by name."""
    at(node, "namespace", "create", "-n", "governed", "--sku", "premium")
    verbs, end = ("namespace", "application-group"), ("--namespace-name", "governed", "-n", "jobs", "-o", "json")
    one, two, three = (
        ("--throttling-policy-config", f"name={name}", f"metric-id={metric}", f"rate-limit-threshold={rate}")
        for name, metric, rate in (
            ("one", "IncomingMessages", "10"), ("two", "IncomingBytes", "2000"), ("two", "OutgoingBytes", "3000"),
        )
    )  # fmt: skip

    created = at(node, *verbs, "create", *end, "--client-app-group-id", "NamespaceSASKeyName=app", *one, *two).json
    disabled = at(node, *verbs, "update", *end, "--is-enabled", "false").json
    added = at(node, *verbs, "policy", "add", *end, *three).json
    removed = at(node, *verbs, "policy", "remove", *end, "--policy", "name=one").json
    shown = at(node, *verbs, "show", *end).json
    heading, _, row = at(node, *verbs, "list", "--namespace-name", "governed", "-o", "table").lines
    deleted = at(node, *verbs, "delete", *end)

    assert created["clientAppGroupIdentifier"] == "NamespaceSASKeyName=app"
    assert created["isEnabled"] is True
    assert [policy["rateLimitThreshold"] for policy in created["policies"]] == [10, 2000]
    assert (disabled["isEnabled"], len(disabled["policies"])) == (False, 2)
    assert [policy["metricId"] for policy in added["policies"]] == ["IncomingMessages", "OutgoingBytes"]
    assert [policy["name"] for policy in removed["policies"]] == ["two"]
    assert shown == removed
    assert heading.split() == ["Name", "Client", "Enabled", "Policies"]
    assert row.split()[:2] == ["jobs", "NamespaceSASKeyName=app"]
    assert (deleted.code, deleted.out) == (Exit.OK, "")


def test_policies_must_be_complete(node: Node) -> None:
    """An incomplete policy must not become an empty one, and an unknown name must be an error."""
    at(node, "namespace", "create", "-n", "governed-too", "--sku", "premium")
    verbs, end = ("namespace", "application-group"), ("--namespace-name", "governed-too", "-n", "jobs")
    at(node, *verbs, "create", *end, "--client-app-group-id", "EntitySASKeyName=app")

    half = at(node, *verbs, "policy", "add", *end, "--throttling-policy-config", "name=one", "metric-id=IncomingBytes")
    absent = at(node, *verbs, "policy", "remove", *end, "--policy", "name=one")
    nobody = at(node, *verbs, "show", "--namespace-name", "governed-too", "-n", "job")

    assert (half.code, "rate-limit-threshold=..." in half.err) == (Exit.USAGE, True)
    assert (absent.code, absent.err) == (Exit.NOT_FOUND, "hubmere: there is no policy 'one'; there is none\n")
    assert nobody.err == "hubmere: there is no application group 'job'; did you mean 'jobs'?\n"


# --- hubs, groups, capture -------------------------------------------------------------------------------------------


def test_part_of_a_list_is_shown(node: Node, namespace: str) -> None:
    """As with `az`; the order is that of the names."""
    place = ("--namespace-name", namespace)
    for name in ("a", "b", "c"):
        at(node, "eventhub", "create", *place, "-n", name)
        at(node, "consumergroup", "create", *place, "--eventhub-name", "a", "-n", f"of-{name}")

    hubs = at(node, "eventhub", "list", *place, "--skip", "1", "--top", "1", "--query", "[].name").json
    groups = at(node, "consumergroup", "list", *place, "--eventhub-name", "a", "--top=2", "--query", "[].name").json
    wrong = at(node, "eventhub", "list", *place, "--top", "-1")

    assert (hubs, groups) == (["b"], ["$Default", "of-a"])
    assert wrong.code == Exit.FAILED
    assert "'-1' is not a valid $top" in wrong.err


def test_hub_is_created_changed_listed_and_deleted(node: Node, namespace: str) -> None:
    """An update keeps settings that are not given, although ARM replaces them; given days override stored hours."""
    end = ("--namespace-name", namespace, "-n", "meters", "-o", "json")

    created = at(node, "eventhub", "create", *end, "--partition-count", "3", "--retention-time", "48").json
    updated = at(node, "eventhub", "update", *end, "--message-retention", "3", "--user-metadata", "m").json
    disabled = at(node, "eventhub", "update", *end, "--status", "SendDisabled").json
    heading, _, row = at(node, "eventhub", "list", "--namespace-name", namespace, "-o", "table").lines
    deleted = at(node, "eventhub", "delete", *end)

    assert (created["partitionCount"], created["messageRetentionInDays"]) == (3, 2)
    assert updated["retentionDescription"]["retentionTimeInHours"] == 72
    kept = disabled
    assert (kept["status"], kept["userMetadata"], kept["messageRetentionInDays"]) == ("SendDisabled", "m", 3)
    assert heading.split()[:2] == ["Name", "Partitions"]
    assert row.split() == ["meters", "3", "72", "Delete", "SendDisabled"]
    assert (deleted.code, deleted.out) == (Exit.OK, "")


def test_compacted_hub_accepts_the_options_of_compaction(node: Node, namespace: str) -> None:
    """They are part of the same description."""
    place = ("--namespace-name", namespace, "-n", "latest", "-o", "json")

    hub = at(
        node, "eventhub", "create", *place, "--cleanup-policy", "Compact", "--tombstone-retention-time-in-hours", "2",
        "--min-compaction-lag-in-mins", "5", "--timestamp-type", "Create",
    ).json  # fmt: skip

    retention = hub["retentionDescription"]
    assert (retention["cleanupPolicy"], retention["tombstoneRetentionTimeInHours"]) == ("Compact", 2)
    assert retention["minCompactionLagTimeInMinutes"] == 5
    assert hub["messageTimestampDescription"]["timestampType"] == "Create"


@pytest.mark.parametrize("verbs", [("eventhub", "consumer-group"), ("consumergroup",)])
def test_consumer_group_is_created_changed_listed_and_deleted(node: Node, hub: str, verbs: tuple[str, ...]) -> None:
    """Both the name of the command in `az` and the shorter one work."""
    end = ("--eventhub-name", hub, "-n", "readers", "-o", "json")

    created = at(node, *verbs, "create", *end, "--user-metadata", "one").json
    updated = at(node, *verbs, "update", *end, "--user-metadata", "two").json
    shown = at(node, *verbs, "show", *end).json
    listed = at(node, *verbs, "list", "--eventhub-name", hub, "-o", "table").lines
    deleted = at(node, *verbs, "delete", *end)

    texts = [group["userMetadata"] for group in (created, updated, shown)]
    assert texts == ["one", "two", "two"]
    assert [line.split()[0] for line in listed[2:]] == ["$Default", "readers"]
    assert deleted.code == Exit.OK


def test_capture_keeps_its_settings_while_it_is_disabled(node: Node, hub: str) -> None:
    """A user who disables it for an hour does not have to enter everything again."""
    before = at(node, "capture", "show", "-n", hub, "-o", "json").json
    enabled = at(
        node, "capture", "enable", "-n", hub, "--capture-interval", "120", "--encoding", "AvroDeflate",
        "--storage-account", "account", "--blob-container", "box", "--skip-empty-archives", "-o", "json",
    ).json  # fmt: skip
    disabled = at(node, "capture", "disable", "-n", hub, "-o", "json").json
    again = at(node, "eventhub", "update", "-n", hub, "--enable-capture", "true", "-o", "json").json

    assert before == {"enabled": False}
    assert (enabled["enabled"], enabled["encoding"], enabled["skipEmptyArchives"]) == (True, "AvroDeflate", True)
    assert enabled["destination"]["blobContainer"] == "box"
    assert disabled == {**enabled, "enabled": False}
    assert again["captureDescription"] == enabled


def test_state_of_capture_is_shown_for_hubs_and_partitions(node: Node, hub: str) -> None:
    """The job of this node does not run, and the command reports that."""
    at(node, "capture", "enable", "-n", hub, "--encoding", "Parquet", "--storage-account", "account")
    at(node, "send", hub, "waiting", "--partition-id", "1")

    shown = at(node, "capture", "show", "-n", hub, "-o", "json").json
    listed = at(node, "capture", "list", "-o", "table").lines
    partitions = at(node, "capture", "partitions", "-n", hub, "-o", "table").lines

    state = shown["captureState"]
    assert (shown["encoding"], state["state"], state["lagEvents"]) == ("Parquet", "Unsupervised", 1)
    assert "capture_supervise is off" in state["reason"]
    assert state["destination"].endswith("/capture/files/account")
    assert listed[2].split()[:3] == [hub, "Unsupervised", "1"]
    assert [line.split()[:3] for line in partitions[2:]] == [["0", "0", "0"], ["1", "0", "1"]]


def test_a_destination_that_is_not_allowed_is_refused_in_one_line(node: Node, hub: str) -> None:
    """The command repeats what the node said."""
    refused = at(node, "capture", "enable", "-n", hub, "--storage-account", "file:///etc")

    assert refused.code == Exit.FAILED
    assert "is not a valid capture destination" in refused.err


# --- geo-recovery ----------------------------------------------------------------------------------------------------


def test_alias_is_paired_failed_over_and_deleted(node: Node) -> None:
    """A secondary must be empty, so both namespaces are new."""
    for name in ("primary-one", "second-one"):
        assert at(node, "namespace", "create", "-n", name).code == Exit.OK
    verbs, alias = "georecovery-alias", ("-a", "shared-name", "-o", "json")
    primary, second = ("--namespace-name", "primary-one"), ("--namespace-name", "second-one")

    free = at(node, verbs, "exists", *primary, *alias).json
    paired = at(node, verbs, "set", *primary, *alias, "--partner-namespace", "second-one").json
    keys = at(
        node, verbs, "authorization-rule", "keys", "list", *primary, *alias, "-n", "RootManageSharedAccessKey"
    ).json
    listed = at(node, verbs, "list", *primary, "-o", "table").lines
    moved = at(node, "georecovery", "fail-over", *second, *alias).json
    deleted = at(node, verbs, "delete", *second, "-a", "shared-name")

    assert free["nameAvailable"] is True
    assert (paired["role"], paired["provisioningState"]) == ("Primary", "Succeeded")
    assert "shared-name" in keys["aliasPrimaryConnectionString"]
    assert listed[2].split()[:2] == ["shared-name", "Primary"]
    assert moved["role"] == "PrimaryNotReplicating"
    assert deleted.code == Exit.OK


def test_pairing_can_be_broken(node: Node) -> None:
    """The command runs on the primary, which then stops replicating."""
    for name in ("primary-two", "second-two"):
        assert at(node, "namespace", "create", "-n", name).code == Exit.OK
    place = ("--namespace-name", "primary-two", "-a", "broken-name", "-o", "json")
    at(node, "georecovery-alias", "create", *place, "--partner-namespace", "second-two")

    broken = at(node, "georecovery-alias", "break-pair", *place).json

    assert broken["role"] == "PrimaryNotReplicating"
    assert broken == at(node, "georecovery-alias", "show", *place).json


def test_wait_ends_when_the_resource_has_the_requested_state(node: Node, namespace: str) -> None:
    """Scripts written for `az` wait after each change; here the change is already complete."""
    there = [
        at(node, "namespace", "wait", "-n", namespace, *goal).code
        for goal in ((), ("--created",), ("--updated",), ("--exists",))
    ]
    gone = at(node, "namespace", "wait", "-n", "never-made", "--deleted").code

    assert (there, gone) == ([Exit.OK] * 4, Exit.OK)


def test_wait_ends_with_an_error_after_its_timeout(node: Node, namespace: str) -> None:
    """It prints a sentence and has an exit code; two conditions at once are refused."""
    vain = at(node, "namespace", "wait", "-n", namespace, "--deleted", "--interval", "1", "--timeout", "0")
    both = at(node, "namespace", "wait", "-n", namespace, "--deleted", "--created")

    assert (vain.code, vain.err) == (Exit.FAILED, f"hubmere: '{namespace}' was not deleted; 0 s have passed\n")
    assert both.code == Exit.USAGE


@pytest.mark.parametrize(
    ("goal", "code", "message"),
    [
        (("--custom", "status=='Active' && sku.name=='Standard'"), Exit.OK, ""),
        (("--custom", "status=='Gone'", "--timeout", "0"), Exit.FAILED, "'{}' does not satisfy --custom; 0 s have"),
        (("--custom", "status=="), Exit.USAGE, "--custom status==: "),
        (("--custom", "status", "--deleted"), Exit.USAGE, "wait for one condition at a time, not for deleted and"),
        (("--deleted", "--interval", "-1"), Exit.USAGE, "--interval and --timeout are numbers of seconds from 0"),
    ],
)
def test_wait_accepts_a_condition_of_its_own(
    node: Node, namespace: str, goal: tuple[str, ...], code: Exit, message: str
) -> None:
    """The query is on the object that `show` prints, as with `az`."""
    run = at(node, "namespace", "wait", "-n", namespace, *goal)

    assert run.code == code
    assert run.err.startswith(f"hubmere: {message.format(namespace)}" if message else "")


# --- what goes wrong -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eventhub", "show", "-n", "ordres"), "there is no event hub 'ordres'; did you mean 'orders'?"),
        (("eventhub", "update", "-n", "ORDER"), "there is no event hub 'ORDER'; did you mean 'orders'?"),
        (("namespace", "show", "-n", "hubmeer"), "there is no namespace 'hubmeer'; did you mean 'hubmere'?"),
        (
            ("eventhub", "list", "--namespace-name", "hubmeer"),
            "there is no namespace 'hubmeer'; did you mean 'hubmere'?",
        ),
        (
            ("consumergroup", "show", "--eventhub-name", "orders", "-n", "zzz"),
            "there is no consumer group 'zzz'; there are $Default",
        ),
        (
            ("keys", "list", "-n", "RootManageSharedAcessKey"),
            "there is no authorization rule 'RootManageSharedAcessKey'; did you mean 'RootManageSharedAccessKey'?",
        ),
        (("georecovery-alias", "show", "-a", "nowhere"), "there is no alias 'nowhere', and there are no others"),
        (
            ("georecovery-alias", "set", "-a", "new-one", "--partner-namespace", "hubmeer"),
            "there is no namespace 'hubmeer'; did you mean 'hubmere'?",
        ),
        (
            ("eventhub", "create", "-n", "fresh", "--namespace-name", "hubmeer"),
            "there is no namespace 'hubmeer'; did you mean 'hubmere'?",
        ),
    ],
)
def test_unknown_name_is_answered_with_existing_names(node: Node, arguments: tuple[str, ...], message: str) -> None:
    """Most failures are typing errors. The exit code is that of `az`, which scripts test to create what is missing."""
    run = at(node, *arguments)

    assert (run.code, run.out, run.err) == (3, "", f"hubmere: {message}\n")


def test_deleting_an_unknown_resource_is_reported_and_no_failure(node: Node) -> None:
    """As with `az`: cleanup scripts run twice. A missing parent is a failure there and here."""
    run = at(node, "eventhub", "delete", "-n", "ordres")
    orphan = at(node, "eventhub", "delete", "-n", "ordres", "--namespace-name", "hubmeer")

    assert (run.code, run.err) == (Exit.OK, "hubmere: there is no event hub 'ordres'; did you mean 'orders'?\n")
    assert orphan.code == Exit.NOT_FOUND


def test_refusal_of_the_node_is_printed_with_its_tracking_id(node: Node, hub: str) -> None:
    """The operator of the node finds it in the log."""
    run = at(node, "eventhub", "create", "-n", "toomany", "--partition-count", "100000")

    first, second = run.err.splitlines()
    assert run.code == Exit.FAILED
    assert "100000" in first
    assert "TrackingId" not in first
    assert second.rpartition(" ")[2] in node.logs()


@pytest.mark.parametrize(
    "arguments",
    [
        ("eventhub", "create"),
        ("eventhub", "create", "-n", "x", "--status", "Asleep"),
        ("namespace", "create", "-n", "x", "--tags", "no-sign"),
        ("namespace", "authorization-rule", "create", "-n", "x"),
        ("eventhub", "fly"),
        ("eventhb", "list"),
    ],
)
def test_wrong_usage_ends_with_exit_code_2(node: Node, arguments: tuple[str, ...]) -> None:
    """Scripts can distinguish a typing error from a failure."""
    run = at(node, *arguments)

    assert run.code == Exit.USAGE
    assert "Traceback" not in run.err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("namespace", "delete", "-n", "", "--yes"), "--name"),
        (("eventhub", "show", "-n", ""), "--name"),
        (("eventhub", "delete", "-n", "orders", "--namespace-name", ""), "--namespace-name"),
        (("consumergroup", "list", "--eventhub-name", ""), "--eventhub-name"),
        (("send", "", "body"), "HUB"),
        (("send", "orders", "body", "--namespace-name", ""), "--namespace-name"),
        (("tail", ""), "HUB"),
    ],
)
def test_empty_name_is_wrong_usage(node: Node, arguments: tuple[str, ...], what: str) -> None:
    """An unset variable of a script must not select the node's own namespace, which it would then delete."""
    run = at(node, *arguments)

    assert (run.code, run.err) == (Exit.USAGE, f"hubmere: {what} is empty; expected a name\n")
    assert at(node, "namespace", "show").code == Exit.OK


def test_resource_id_replaces_the_names(node: Node, namespace: str) -> None:
    """Scripts for `az` pass the ids that other commands print."""
    place = ("--namespace-name", namespace, "-g", "plant")
    hub_id = at(node, "eventhub", "create", "-n", "by-id", *place, "--query", "id").json
    group_id = at(node, "consumergroup", "create", "--eventhub-name", "by-id", "-n", "g", *place, "--query", "id").json

    shown = at(node, "eventhub", "show", "--ids", hub_id, "--query", "[name, resourceGroup]").json
    changed = at(node, "eventhub", "update", f"--ids={hub_id}", "--user-metadata", "m", "--query", "userMetadata").json
    deleted = [at(node, "consumergroup", "delete", "--ids", group_id), at(node, "eventhub", "delete", "--ids", hub_id)]

    assert (shown, changed) == (["by-id", "plant"], "m")
    assert [run.code for run in deleted] == [Exit.OK, Exit.OK], deleted
    assert at(node, "eventhub", "list", *place).json == []
    assert (
        at(node, "namespace", "show", "--ids", hub_id.partition("/eventhubs")[0], "--query", "name").json == namespace
    )


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (("orders",), "--ids orders is not an id of the form /subscriptions/.../resourceGroups/.../providers/.../name"),
        (("/subscriptions/s/resourceGroups/g/providers/p/namespaces/n",), "--ids /subscriptions/s/resourceGroups/g/"),
        (("",), "--ids  is not an id of the form"),
        ((), "--ids takes one resource id; run the command once for each resource"),
        (("a", "b"), "--ids takes one resource id; run the command once for each resource"),
        (("a", "--ids", "b"), "--ids takes one resource id; run the command once for each resource"),
    ],
)
def test_wrong_resource_id_is_wrong_usage(node: Node, ids: tuple[str, ...], message: str) -> None:
    """The error has the form of the id that the command accepts."""
    run = at(node, "eventhub", "delete", "--ids", *ids)

    assert run.code == Exit.USAGE
    assert run.err.startswith(f"hubmere: {message}")


def test_options_of_scripts_for_az_are_accepted(node: Node, namespace: str) -> None:
    """Global options of `az` and further names of its options: an unknown option would end a script."""
    scope = ("--namespace-name", namespace, "--only-show-errors")
    compacted = ("--cleanup-policy", "Compact", "--min-lag", "2", "--tombstone-time", "3")

    made = at(node, "eventhub", "create", "-n", "clicks", *compacted, *scope).json
    shown = at(node, "eventhub", "show", "--event-hub-name", "clicks", *scope, "--verbose").json
    spaces = [at(node, "namespace", verb, *scope, "--debug", "--no-wait") for verb in ("show", "update", "delete")]

    assert made == shown
    retention = shown["retentionDescription"]
    assert (retention["minCompactionLagTimeInMinutes"], retention["tombstoneRetentionTimeInHours"]) == (2, 3)
    assert [run.code for run in spaces] == [Exit.OK] * 3, spaces


# --- roles -----------------------------------------------------------------------------------------------------------


def test_role_is_assigned_listed_and_deleted(node: Node, hub: str) -> None:
    """The role is named as with `az role assignment`; assigning it twice is no error."""
    assignment = ("role", "assignment")
    who = ("--assignee", f"user-of-{hub}", "--role", "azure event hubs data sender")
    created = at(node, *assignment, "create", *who, "--eventhub-name", hub, "-o", "json").json
    again = at(node, *assignment, "create", *who, "--scope", created["scope"], "-o", "json").json
    below = at(node, *assignment, "create", *who, "--eventhub-name", hub, "--consumer-group-name", "$Default")
    listed = at(node, *assignment, "list", "--assignee", f"user-of-{hub}", "-o", "json").json
    deleted = at(node, *assignment, "delete", "--assignee", f"user-of-{hub}")
    left = at(node, *assignment, "list", "--assignee", f"user-of-{hub}", "-o", "json").json

    assert created["roleDefinitionName"] == "Azure Event Hubs Data Sender"
    assert again["name"] == created["name"]
    assert below.code == deleted.code == Exit.OK
    assert {one["scope"] for one in listed} == {created["scope"], f"{created['scope']}/consumergroups/$Default"}
    assert left == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("create", "--assignee", "x", "--role", "King"), Exit.USAGE),
        (("create", "--assignee", "x", "--role", "Reader", "--consumer-group-name", "g"), Exit.USAGE),
        (("create", "--assignee", "x", "--role", "Reader", "--scope", "/subscriptions/s"), Exit.USAGE),
        (("create", "--assignee", "x", "--role", "Reader", "--eventhub-name", "nowhere"), Exit.NOT_FOUND),
        (("delete",), Exit.USAGE),
    ],
)
def test_invalid_role_assignment_is_refused(node: Node, arguments: tuple[str, ...], code: Exit) -> None:
    """Nothing is assigned, and the reason is one line."""
    run = at(node, "role", "assignment", *arguments)

    assert run.code == code
    assert run.err.startswith("hubmere: ")
