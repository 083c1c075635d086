"""Kafka's error codes: numbers, names and whether to retry, compared with a foreign table."""

from kio.schema.errors import ErrorCode as KioErrorCode

from hubmere.wire.kafka.errors import ErrorCode


def test_every_code_has_the_number_name_and_retriability_of_kafka() -> None:
    """A wrong flag makes clients give up, or retry for ever."""
    theirs = {int(code): (code.name.upper(), code.retriable) for code in KioErrorCode}

    ours = {int(code): (code.name, code.retriable) for code in ErrorCode}

    assert ours == theirs


def test_every_code_has_a_sentence() -> None:
    """Responses with a message field contain it."""
    messages = [code.message for code in ErrorCode]

    assert all(message.endswith(".") for message in messages)
    assert len(set(messages)) == len(messages)
