"""An alias whose primary is on another node: the secondary refuses connections, and accepts them after a failover."""

from endpoints.amqp.amqp_node import AmqpNode
from endpoints.amqp.raw_client import RawClient
from hubmere.model.names import alias_name, namespace_name
from hubmere.model.spec import NamespaceSpec

PAIRING = "0123456789abcdef0123456789abcdef"


def _become_secondary(node: AmqpNode) -> None:
    node.manage(
        lambda manager, actor, done: manager.create_namespace(namespace_name("west-ns"), NamespaceSpec(), actor, done)
    )
    node.manage(
        lambda _, actor, done: node.broker.replicas.begin(
            "west-ns", alias_name("shop"), "east-ns", PAIRING, actor, done
        )
    )


def test_a_secondary_closes_connections_that_name_the_alias(node: AmqpNode) -> None:
    """The condition is one that clients retry, and the text names the primary."""
    _become_secondary(node)

    with RawClient(node, hostname="shop.example.org", begins=False) as client:
        refused = client.closed()

    assert refused.condition == "amqp:connection:forced"
    assert "served by the namespace 'east-ns'" in refused.description


def test_secondary_serves_the_alias_after_a_failover(node: AmqpNode) -> None:
    """The same name is now served by the other node."""
    _become_secondary(node)

    node.manage(lambda manager, actor, done: manager.fail_over("west-ns", "shop", actor, done))

    with RawClient(node, hostname="shop.example.org") as client:
        assert client.session is not None
