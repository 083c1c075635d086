"""Which host names and ports a node advertises."""

from hubmere.model.addresses import Addresses, AdvertisedListener
from hubmere.model.entity import AccessRule, Rights
from hubmere.model.names import NamespaceName, RuleName
from hubmere.model.security.connection_string import ConnectionString


def addresses(*hostnames: str, advertised: tuple[AdvertisedListener, ...] = ()) -> Addresses:
    return Addresses(
        namespace="hubmere", hostnames=hostnames, advertised=advertised, amqp=5672, amqps=5671, kafka=9092, kafkas=9093
    )


def a_rule() -> AccessRule:
    return AccessRule(
        namespace=NamespaceName("hubmere"),
        name=RuleName("root"),
        rights=Rights.MANAGE,
        primary_key="p",
        secondary_key="s",
    )


def test_the_first_host_name_is_advertised_even_if_another_equals_the_namespace() -> None:
    """In a Docker composition the node is called `hubmere` by its neighbours, and the host cannot resolve that name."""
    node = addresses("localhost", "hubmere")

    assert node.host_of("hubmere") == "localhost"
    assert node.address_of("kafka") == "localhost:9092"
    assert ConnectionString.parse(node.connection_string(a_rule(), "k")).host == "localhost"


def test_listener_has_the_address_that_it_advertises() -> None:
    """This works like Kafka's advertised.listeners; other listeners have the node's own address."""
    advertised = (AdvertisedListener("kafka", "broker.example", 19092), AdvertisedListener("amqps", "events.example"))
    node = addresses("localhost", advertised=advertised)

    assert node.address_of("kafka") == "broker.example:19092"
    assert node.address_of("kafkas") == "localhost:9093"
    assert node.address_of("kafka", "other") == "other.broker.example:19092"
    assert node.port_of("kafka", "localhost") == 9092
    assert ConnectionString.parse(node.connection_string(a_rule(), "k")).host == "events.example"
    assert ConnectionString.parse(node.emulator_connection_string(a_rule(), "k")).host == "localhost"


def test_a_port_that_is_advertised_is_in_the_connection_string() -> None:
    """The port mapping of a container changes the port."""
    node = addresses("localhost", advertised=(AdvertisedListener("amqp", "localhost", 15672),))

    assert ":15672" in node.emulator_connection_string(a_rule(), "k")


def test_disabled_listener_has_no_address() -> None:
    """This holds even if the settings advertise one."""
    node = Addresses(namespace="hubmere", advertised=(AdvertisedListener("kafka", "broker.example", 19092),))

    assert node.address_of("kafka") is None
