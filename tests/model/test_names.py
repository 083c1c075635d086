"""Names: accepted and refused ones, and the texts of refusals."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hubmere.model import names
from hubmere.model.errors import InvalidArgument, InvalidName, PartitionNotFound
from hubmere.model.keys import check_partition_key

PARSERS: dict[str, Callable[[str], str]] = {
    "namespace": names.namespace_name,
    "hub": names.hub_name,
    "emulator hub": names.emulator_hub_name,
    "group": names.group_name,
    "rule": names.rule_name,
    "alias": names.alias_name,
    "application group": names.application_group_name,
    "publisher": names.publisher_name,
    "kafka group": names.kafka_group_id,
}

ACCEPTED = [
    ("namespace", "abcdef"),
    ("namespace", "a" * 50),
    ("namespace", "my-Space-1"),
    ("hub", "x"),
    ("hub", "7"),
    ("hub", "orders.v2-eu_west"),
    ("hub", "a" * 256),
    ("emulator hub", "area/orders"),
    ("group", "cg1"),
    ("group", "a" * 50),
    ("rule", "RootManageSharedAccessKey"),
    ("rule", "a" * 256),
    ("alias", "a"),
    ("application group", "batch-readers"),
    ("publisher", "device 01:ä"),
    ("kafka group", "connect-cluster/1 $x"),
]

REFUSED = [
    ("namespace", "short"),
    ("namespace", "a" * 51),
    ("namespace", "1abcdef"),
    ("namespace", "abcdef-"),
    ("namespace", "abc_def"),
    ("namespace", "abcdef\n"),
    ("hub", ""),
    ("hub", "a" * 257),
    ("hub", ".orders"),
    ("hub", "orders-"),
    ("hub", "area/orders"),
    ("hub", "örders"),
    ("hub", "orders\n"),
    ("hub", "$management"),
    ("emulator hub", "/orders"),
    ("group", "a" * 51),
    ("group", "$other"),
    ("rule", ""),
    ("alias", "a.b"),
    ("application group", "_x"),
    ("publisher", ""),
    ("publisher", "a/b"),
    ("publisher", "a\x00b"),
    ("publisher", "p" * 257),
    ("kafka group", ""),
    ("kafka group", "g" * 257),
]


@pytest.mark.parametrize(("kind", "text"), ACCEPTED)
def test_name_inside_the_rules_is_kept_as_given(kind: str, text: str) -> None:
    """Names keep their case."""
    assert PARSERS[kind](text) == text


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_refusal_of_an_invalid_name_states_the_rule(kind: str, text: str) -> None:
    """The user must learn the rule from the refusal."""
    with pytest.raises(InvalidName) as refusal:
        PARSERS[kind](text)

    assert "characters" in refusal.value.text()


@pytest.mark.parametrize("text", ["$Default", "$default", "$DEFAULT"])
def test_default_group_is_recognised_in_any_case(text: str) -> None:
    """Clients write it in several ways, blob stores lowercase it."""
    assert names.group_name(text) == "$Default"


@given(st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,40}[A-Za-z0-9])?", fullmatch=True))
def test_every_name_of_the_hub_grammar_is_accepted_and_case_insensitive(text: str) -> None:
    """The grammar of the reference is the grammar of the code."""
    name = names.hub_name(text)

    assert names.fold(name.upper()) == names.fold(name.lower()) == names.fold(name)


@given(st.sampled_from(sorted(PARSERS)), st.text(max_size=300))
@example("hub", "a\n")
def test_any_text_is_accepted_unchanged_or_refused(kind: str, text: str) -> None:
    """No text may cause another error or be changed silently."""
    try:
        parsed = PARSERS[kind](text)
    except InvalidName as refusal:
        parsed = str(refusal.value)

    assert names.fold(parsed) == names.fold(text)


def test_partition_key_has_at_most_128_characters() -> None:
    """The Java client cannot send a longer one."""
    check_partition_key("k" * 128)

    with pytest.raises(InvalidArgument) as refusal:
        check_partition_key("k" * 129)

    assert "128" in refusal.value.text()


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("3", 3)])
def test_partition_id_is_a_decimal_text(text: str, number: int) -> None:
    """Ids are contiguous decimal strings from 0."""
    assert names.partition_number(text, hub="eh1", count=4) == number


@pytest.mark.parametrize("text", ["4", "-1", "00", "01", "", "x", "1.0", "+1", " 1", "٣", "9" * 400])
def test_partition_id_outside_the_hub_is_refused(text: str) -> None:
    """The refusal names the range, as the service does."""
    with pytest.raises(PartitionNotFound) as refusal:
        names.partition_number(text, hub="eh1", count=4)

    assert "between 0 and 3" in refusal.value.text()
