"""An alias whose primary is on another node: its secondary refuses connections, and takes them after a failover."""

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
    """With a condition that clients retry, and a text that says where the alias is."""
    _become_secondary(node)

    with RawClient(node, hostname="shop.example.org", begins=False) as client:
        refused = client.closed()

    assert refused.condition == "amqp:connection:forced"
    assert "served by the namespace 'east-ns'" in refused.description


def test_a_secondary_answers_for_the_alias_once_it_was_failed_over(node: AmqpNode) -> None:
    """The same name, the other node."""
    _become_secondary(node)

    node.manage(lambda manager, actor, done: manager.fail_over("west-ns", "shop", actor, done))

    with RawClient(node, hostname="shop.example.org") as client:
        assert client.session is not None
