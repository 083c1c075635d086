"""The Atom plane: hubs, groups, partitions and revoked publishers in XML (service 4.1)."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import httpx
import pytest

from endpoints.http.harness import HttpNode
from hubmere.broker.egress import NOBODY, Egress
from hubmere.endpoints.http.atom.xml import CONNECT, parse
from hubmere.endpoints.http.errors import MalformedRequest

ATOM = "{http://www.w3.org/2005/Atom}"
EH = f"{{{CONNECT}}}"


@pytest.fixture
def manager(node: HttpNode) -> Iterator[httpx.Client]:
    """A client with the namespace's root key."""
    with node.client(Authorization=node.sas()) as client:
        yield client


def _entry(*elements: str, kind: str = "EventHubDescription") -> str:
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f'<{kind} xmlns="{CONNECT}" xmlns:i="http://www.w3.org/2001/XMLSchema-instance">{"".join(elements)}</{kind}>'
        "</content></entry>"
    )


def _description(response: httpx.Response, kind: str = "EventHubDescription") -> ElementTree.Element:
    found = ElementTree.fromstring(response.content).find(f".//{EH}{kind}")
    assert found is not None, response.text
    return found


def test_the_root_answers_anyone_with_the_probe_feed(node: HttpNode) -> None:
    """35: it needs no token."""
    with node.client() as client:
        response = client.get("/")

    assert response.status_code == 200
    assert response.headers["content-type"] == "application/atom+xml;type=feed;charset=utf-8"
    assert ElementTree.fromstring(response.content).findtext(f"{ATOM}title") == "Publicly Listed Services"


def test_a_hub_is_created_once_and_then_replaced(manager: httpx.Client) -> None:
    """36: 201, 409 without If-Match, 200 with it."""
    body = _entry("<MessageRetentionInDays>3</MessageRetentionInDays>", "<PartitionCount>2</PartitionCount>")

    statuses = [
        manager.put("/fresh?api-version=2014-01", content=body).status_code,
        manager.put("/fresh", content=body).status_code,
        manager.put("/fresh", content=body, headers={"If-Match": "*"}).status_code,
    ]

    assert statuses == [201, 409, 200]


def test_a_hub_without_settings_has_the_services_defaults(manager: httpx.Client) -> None:
    """4: four partitions, seven days, Active, and the group $Default."""
    created = _description(manager.put("/fresh"))
    groups = ElementTree.fromstring(manager.get("/fresh/consumergroups").content)

    assert created.findtext(f"{EH}PartitionCount") == "4"
    assert [id_.text for id_ in created.find(f"{EH}PartitionIds") or ()] == ["0", "1", "2", "3"]
    assert created.findtext(f"{EH}MessageRetentionInDays") == "7"
    assert created.findtext(f"{EH}Status") == "Active"
    assert [title.text for title in groups.findall(f"{ATOM}entry/{ATOM}title")] == ["$Default"]


def test_an_element_out_of_order_is_ignored(manager: httpx.Client) -> None:
    """37: like the service's serializer, which gives it its default."""
    body = _entry("<PartitionCount>2</PartitionCount>", "<MessageRetentionInDays>3</MessageRetentionInDays>")

    created = _description(manager.put("/fresh", content=body))

    assert created.findtext(f"{EH}PartitionCount") == "2"
    assert created.findtext(f"{EH}MessageRetentionInDays") == "7"


def test_an_update_replaces_the_rules_of_a_hub(node: HttpNode, manager: httpx.Client) -> None:
    """Keys that a client sends are stored unchanged."""
    rule = (
        '<AuthorizationRule i:type="SharedAccessAuthorizationRule"><ClaimType>SharedAccessKey</ClaimType>'
        "<ClaimValue>None</ClaimValue><Rights><AccessRights>Send</AccessRights></Rights>"
        "<KeyName>{name}</KeyName><PrimaryKey>my-key</PrimaryKey></AuthorizationRule>"
    )
    first = _entry(f"<AuthorizationRules>{rule.format(name='one')}</AuthorizationRules>")
    second = _entry(f"<AuthorizationRules>{rule.format(name='two')}</AuthorizationRules>")

    manager.put("/fresh", content=first)
    with node.client(Authorization=node.sas("fresh", rule="one", key="my-key")) as device:
        sent = device.post("/fresh/messages", content=b"x")
    manager.put("/fresh", content=second, headers={"If-Match": "*"})
    names = [name.text for name in _description(manager.get("/fresh")).iter(f"{EH}KeyName")]

    assert sent.status_code == 201
    assert names == ["two"]


def test_only_managers_see_keys(node: HttpNode) -> None:
    """A listener reads its own hub, without the keys, and nothing else."""
    node.add_rule("listen", "Listen", hub="orders")
    node.add_hub("other")

    with node.client(Authorization=node.sas("orders", rule="listen", hub="orders")) as client:
        own = client.get("/orders")
        other = client.get("/other")
        listing = client.get("/$Resources/EventHubs")
        change = client.put("/orders/consumergroups/mine")

    assert [response.status_code for response in (own, other, listing, change)] == [200, 401, 401, 401]
    assert "<PrimaryKey>" not in own.text


def test_the_partition_count_cannot_change(manager: httpx.Client) -> None:
    """6: 400 on a tier that cannot grow."""
    response = manager.put("/orders", content=_entry("<PartitionCount>8</PartitionCount>"), headers={"If-Match": "*"})

    assert response.status_code == 400


def test_a_hub_is_read_listed_and_deleted(manager: httpx.Client) -> None:
    """A deleted hub is no longer found."""
    manager.put("/another")
    listed = ElementTree.fromstring(manager.get("/$Resources/EventHubs").content)
    first_page = ElementTree.fromstring(manager.get("/$Resources/EventHubs?$skip=1&$top=1").content)

    gone = manager.delete("/another")
    after = manager.get("/another")

    titles = [title.text for title in listed.findall(f"{ATOM}entry/{ATOM}title")]
    assert titles == ["another", "orders"]
    assert [title.text for title in first_page.findall(f"{ATOM}entry/{ATOM}title")] == ["orders"]
    assert (gone.status_code, gone.content, after.status_code) == (200, b"", 404)


def test_a_group_has_metadata_that_can_be_replaced(manager: httpx.Client) -> None:
    """The statuses are 201 for a new group, 409 again, 200 with If-Match and for a deletion, then 404."""
    body = _entry("<UserMetadata>a &lt; b</UserMetadata>", kind="ConsumerGroupDescription")
    path = "/orders/ConsumerGroups/Mine"

    created = manager.put(path, content=body)
    again = manager.put(path, content=body)
    replaced = manager.put(path, headers={"If-Match": "*"})
    deleted = manager.delete("/orders/consumergroups/mine")
    gone = manager.get(path)

    statuses = [response.status_code for response in (created, again, replaced, deleted, gone)]
    assert statuses == [201, 409, 200, 200, 404]
    assert _description(created, "ConsumerGroupDescription").findtext(f"{EH}UserMetadata") == "a < b"


def test_the_default_group_cannot_be_deleted(manager: httpx.Client) -> None:
    """5: the deletion is refused, and the group still exists."""
    assert manager.delete("/orders/consumergroups/$Default").status_code == 409
    assert manager.get("/orders/consumergroups/$Default").status_code == 200


@pytest.mark.parametrize(("version", "is_shown"), [("2014-01", False), ("2015-01", True), ("2017-04", True)])
def test_newer_clients_get_more_of_a_partition(manager: httpx.Client, version: str, is_shown: bool) -> None:
    """41: the last two elements from 2015-01 on."""
    manager.post("/orders/partitions/1/messages", content=b"x")

    response = manager.get(f"/orders/consumergroups/$Default/partitions/1?api-version={version}")

    description = _description(response, "PartitionDescription")
    names = [child.tag.removeprefix(EH) for child in description]
    assert names[:3] == ["SizeInBytes", "BeginSequenceNumber", "EndSequenceNumber"]
    assert ("LastEnqueuedOffset" in names, "LastEnqueuedTimeUtc" in names) == (is_shown, is_shown)
    assert description.findtext(f"{EH}EndSequenceNumber") == "0"


def test_a_partition_shows_its_bytes_per_second(node: HttpNode, manager: httpx.Client) -> None:
    """The rates of the last second; 0 once there is no traffic."""
    hub, seconds = node.hub("orders"), 2.0

    def rates() -> list[int]:
        info = manager.get("/orders/consumergroups/$Default/partitions/1").text
        return [int(number) for number in re.findall(r"BytesPerSecond>(\d+)<", info)]

    manager.post("/orders/partitions/1/messages", content=b"first")
    node.call(lambda: hub.update_rates(100.0))
    before = node.call(lambda: hub.log(1).state.size_bytes)
    manager.post("/orders/partitions/1/messages", content=b"x" * 1000)
    node.call(lambda: Egress(hub, 1, NOBODY).charge(1, 500, 101.0))
    node.call(lambda: hub.update_rates(100.0 + seconds))
    grown = node.call(lambda: hub.log(1).state.size_bytes) - before
    flowing = rates()
    node.call(lambda: hub.update_rates(103.0))

    assert flowing == [round(grown / seconds), 250]
    assert rates() == [0, 0]


def test_partitions_are_listed(manager: httpx.Client) -> None:
    """One entry each, with relative links below a base."""
    feed = ElementTree.fromstring(manager.get("/orders/consumergroups/$Default/partitions").content)

    entries = feed.findall(f"{ATOM}entry")
    link = entries[0].find(f"{ATOM}link")
    assert feed.findtext(f"{ATOM}title") == "Partitions"
    assert [entry.findtext(f"{ATOM}title") for entry in entries] == ["0", "1", "2", "3"]
    assert link is not None
    assert link.get("href") == "orders/consumergroups/$Default/partitions/0?api-version=2014-01"
    assert manager.get("/orders/consumergroups/$Default/partitions/9").status_code == 404
    assert manager.get("/orders/consumergroups/none/partitions/0").status_code == 404


def test_revoked_publishers_are_listed(manager: httpx.Client) -> None:
    """201, 409 when it is revoked already, then in the list and by name."""
    first = manager.put("/orders/RevokedPublishers/dev%2001")
    again = manager.put("/orders/revokedpublishers/DEV%2001")
    listed = ElementTree.fromstring(manager.get("/orders/revokedpublishers").content)
    one = manager.get("/orders/revokedpublishers/dev%2001")
    missing = manager.delete("/orders/revokedpublishers/other")

    assert (first.status_code, again.status_code, one.status_code, missing.status_code) == (201, 409, 200, 404)
    assert [name.text for name in listed.iter(f"{EH}Name")] == ["dev 01"]


@pytest.mark.parametrize(
    "body",
    [
        "<",
        "<a></b>",
        "not xml",
        _entry(kind="QueueDescription"),
        _entry("<PartitionCount>many</PartitionCount>"),
        _entry("<MessageRetentionInDays>99999999999</MessageRetentionInDays>"),
        _entry("<Status>Sleeping</Status>"),
        _entry("<PartitionCount>1000</PartitionCount>"),
        _entry("<AuthorizationRules><AuthorizationRule/></AuthorizationRules>"),
        _entry(
            "<AuthorizationRules><AuthorizationRule><Rights><AccessRights>Manage</AccessRights></Rights>"
            "<KeyName>a</KeyName></AuthorizationRule></AuthorizationRules>"
        ),
        '<!DOCTYPE a [<!ENTITY b "b">]>' + _entry("<UserMetadata>&b;</UserMetadata>"),
        '<!DOCTYPE a SYSTEM "http://localhost/secrets">' + _entry(),
        "<a>" * 100 + "</a>" * 100,
    ],
)
def test_an_invalid_description_is_refused(manager: httpx.Client, body: str) -> None:
    """No hub is created, and external entities are never loaded."""
    assert manager.put("/fresh", content=body).status_code == 400
    assert manager.get("/fresh").status_code == 404


def test_an_entity_bomb_is_refused_before_it_grows() -> None:
    """A document type is refused as soon as it begins."""
    levels = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))

    with pytest.raises(MalformedRequest, match="document type"):
        parse(f'<!DOCTYPE b [<!ENTITY l0 "ha">{levels}]><b>&l9;</b>'.encode())


@pytest.mark.parametrize("name", ["a b", "-a", "a" * 257, "h\u00fcb", "a%2Fb"])
def test_a_name_outside_the_rules_is_refused(manager: httpx.Client, name: str) -> None:
    """Service 1.2: the 400 names the rule."""
    response = manager.put(f"/{name}")

    assert response.status_code == 400
    assert "letters, digits" in response.text


def test_the_number_of_hubs_is_limited(node: HttpNode, manager: httpx.Client) -> None:
    """Service 4.1: 403 when the quota is reached."""
    for index in range(9):
        node.add_hub(f"hub{index}")

    assert manager.put("/one-more").status_code == 403
