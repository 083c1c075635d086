"""The settings of each foreign client for a node."""

from typing import Any

from hubmere.testing import Node

USER = "$ConnectionString"


def librdkafka(node: Node, *, tls: bool = False, **more: Any) -> dict[str, Any]:
    """Settings of confluent-kafka; underscores mean dots."""
    settings: dict[str, Any] = {
        "bootstrap.servers": node.kafkas if tls else node.kafka,
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": node.connection_string,
    }
    if tls:
        settings["ssl.ca.location"] = node.ca_file
    return settings | {name.replace("_", "."): value for name, value in more.items()}


def kafka_python(node: Node, *, tls: bool = False, **more: Any) -> dict[str, Any]:
    """Arguments of kafka-python's clients."""
    arguments: dict[str, Any] = {
        "bootstrap_servers": node.kafkas if tls else node.kafka,
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
        "sasl_plain_password": node.connection_string,
    }
    if tls:
        arguments["ssl_cafile"] = node.ca_file
    return arguments | more


def aiokafka(node: Node, **more: Any) -> dict[str, Any]:
    """Arguments of aiokafka's clients."""
    return kafka_python(node) | more
