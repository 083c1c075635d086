"""Connection strings as SDKs, scripts and users write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.errors import InvalidArgument
from hubmere.model.security.connection_string import ConnectionString

KEY = "c2VsZi1ob3N0ZWQtdGVzdC1rZXktMzItYnl0ZXMtbG9uZyE="


def test_odd_case_order_blanks_and_trailing_separator_do_not_matter() -> None:
    """Conformance: SAS 22."""
    text = f" sharedaccessKEY = {KEY} ;EntityPath=orders; ENDPOINT=sb://ns1.servicebus.windows.net/;sharedaccesskeyname=send;"

    parsed = ConnectionString.parse(text)

    assert (parsed.host, parsed.port) == ("ns1.servicebus.windows.net", None)
    assert (parsed.key_name, parsed.key, parsed.entity_path) == ("send", KEY, "orders")


@pytest.mark.parametrize(
    ("endpoint", "host", "port"),
    [
        ("sb://Ns1.ServiceBus.windows.net/", "ns1.servicebus.windows.net", None),
        ("ns1.servicebus.windows.net", "ns1.servicebus.windows.net", None),
        ("sb://localhost:5672", "localhost", 5672),
        ("https://ns1.servicebus.windows.net:443/", "ns1.servicebus.windows.net", 443),
        ("sb://[::1]:5672/", "::1", 5672),
    ],
)
def test_endpoint_is_read_in_every_form_in_use(endpoint: str, host: str, port: int | None) -> None:
    """Java adds the scheme when it is missing; users of local nodes add a port."""
    parsed = ConnectionString.parse(f"Endpoint={endpoint};SharedAccessKeyName=n;SharedAccessKey=k")

    assert (parsed.host, parsed.port) == (host, port)


def test_emulator_literal_is_read_and_built() -> None:
    """The string of the official emulator's readme, character by character."""
    text = (
        "Endpoint=sb://localhost;SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
    )

    parsed = ConnectionString.parse(text + ";")

    assert parsed.is_emulator
    assert parsed.text() == text


def test_signature_keeps_its_equal_signs() -> None:
    """Only the first `=` separates key and value; a token contains more of them."""
    token = "SharedAccessSignature sr=sb%3A%2F%2Fns1&sig=abc%3D&se=1893456000&skn=send"

    parsed = ConnectionString.parse(f"Endpoint=sb://ns1/;SharedAccessSignature={token}")

    assert (parsed.signature, parsed.key, parsed.key_name) == (token, None, None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "Endpoint"),
        ("SharedAccessKeyName=n;SharedAccessKey=topsecret", "Endpoint"),
        ("Endpoint=sb://;SharedAccessKeyName=n;SharedAccessKey=topsecret", "Endpoint"),
        ("Endpoint=sb://host:port/;SharedAccessKeyName=n;SharedAccessKey=topsecret", "Endpoint"),
        ("Endpoint=ftp://host/;SharedAccessKeyName=n;SharedAccessKey=topsecret", "Endpoint"),
        ("Endpoint=sb://host/;SharedAccessKeyName=n", "SharedAccessKey"),
        ("Endpoint=sb://host/;SharedAccessKey=topsecret", "SharedAccessKeyName"),
        ("Endpoint=sb://host/;SharedAccessSignature=topsecret", "SharedAccessSignature"),
        ("Endpoint=sb://host/;topsecret", "key=value"),
        ("Endpoint=sb://host/;=topsecret", "key=value"),
        ("Endpoint=sb://host/;SharedAccessKey=topsecret;sharedaccesskey=topsecret", "once"),
        (
            "Endpoint=sb://host/;SharedAccessKeyName=n;SharedAccessKey=topsecret;"
            "SharedAccessSignature=SharedAccessSignature sr=topsecret",
            "SharedAccessSignature",
        ),
        ("Endpoint=sb://host/;SharedAccessKey=topsecret" * 300, "8192"),
    ],
)
def test_broken_string_is_refused_without_repeating_a_secret(text: str, named: str) -> None:
    """The refusal names the key at fault, and may be logged."""
    with pytest.raises(InvalidArgument) as refusal:
        ConnectionString.parse(text)

    assert named in refusal.value.text()
    assert "topsecret" not in refusal.value.text()


def test_secret_is_not_in_the_repr() -> None:
    """A printed value may end up in a log."""
    parsed = ConnectionString(host="h", key_name="n", key="topsecret")

    assert "topsecret" not in repr(parsed)


def test_unknown_keys_are_ignored() -> None:
    """Old connection strings contain keys that have no meaning here."""
    parsed = ConnectionString.parse("Endpoint=sb://h/;TransportType=Amqp;OperationTimeout=1;RuntimePort=1")

    assert parsed == ConnectionString(host="h")


NAMES = st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=20)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters=";"), min_size=1).filter(
    lambda v: v == v.strip() != ""
)


@given(
    host=NAMES.map(str.lower),
    port=st.none() | st.integers(1, 65535),
    name=VALUES,
    key=VALUES,
    entity=st.none() | NAMES,
    emulator=st.booleans(),
)
def test_connection_string_survives_a_round_trip(
    host: str, port: int | None, name: str, key: str, entity: str | None, emulator: bool
) -> None:
    """Every API returns strings that every API accepts."""
    built = ConnectionString(host=host, port=port, key_name=name, key=key, is_emulator=emulator).with_entity(entity)

    assert ConnectionString.parse(built.text()) == built


@given(
    order=st.permutations(["Endpoint=sb://host/", "SharedAccessKeyName=n", f"SharedAccessKey={KEY}", "EntityPath=e"]),
    upper=st.lists(st.booleans(), min_size=4, max_size=4),
    tail=st.sampled_from(["", ";", " ; ", ";;"]),
)
def test_order_and_case_of_keys_never_matter(order: list[str], upper: list[bool], tail: str) -> None:
    """Users copy, reorder and retype connection strings."""
    cased = [
        name.upper() + sign + value if is_upper else name.lower() + sign + value
        for (name, sign, value), is_upper in zip((part.partition("=") for part in order), upper, strict=True)
    ]

    parsed = ConnectionString.parse(";".join(cased) + tail)

    assert parsed == ConnectionString(host="host", key_name="n", key=KEY, entity_path="e")


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text of a client may raise another error."""
    try:
        host = ConnectionString.parse(f"Endpoint=sb://h/;{text}").host
    except InvalidArgument:
        host = "h"

    assert host == "h"
