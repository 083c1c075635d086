"""Names of captured files, and the spans in files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.pipeline.capture.files.names import DELTA_FORMAT, NamedWindow, NameFormat, Span
from pipeline.capture.plans import NAME_FORMAT

# 2017-09-19 11:45:09 UTC.
SECOND = 1_505_821_509
ODD_FORMAT = "{Year}{Month}{Day}-{Hour}.{Minute}/{PartitionId}_{Namespace}+{EventHub}/{Second}{Second}"


def a_format(text: str = NAME_FORMAT, hub: str = "orders") -> NameFormat:
    return NameFormat(text=text, namespace="shop", hub=hub, extension="avro")


def test_name_is_the_services_own() -> None:
    """Reference, service 6: numbers are padded, the extension is appended."""
    assert a_format().name_of(3, SECOND) == "shop/orders/3/2017/09/19/11/45/09.avro"
    assert a_format(ODD_FORMAT).name_of(3, SECOND) == "20170919-11.45/3_shop+orders/0909.avro"


@given(partition=st.integers(0, 2000), second=st.integers(0, 4_000_000_000))
@pytest.mark.parametrize("text", [NAME_FORMAT, ODD_FORMAT, DELTA_FORMAT])
def test_name_can_be_parsed(text: str, partition: int, second: int) -> None:
    """Verification and cleanup identify files by their names."""
    names = a_format(text)

    assert names.read(names.name_of(partition, second)) == NamedWindow(partition, second)


@pytest.mark.parametrize(
    "name",
    [
        "shop/other/3/2017/09/19/11/45/09.avro",
        "shop/orders/03/2017/09/19/11/45/09.avro",
        "shop/orders/3/2017/13/19/11/45/09.avro",
        "shop/orders/3/2017/09/19/11/45/9.avro",
        "shop/orders/3/2017/09/19/11/45/09.avro.part",
        "shop/orders/3/2017/09/19/11/45/09.parquet",
    ],
)
def test_other_names_are_not_parsed(name: str) -> None:
    """The cases are another hub, other number formats, no date, another extension."""
    assert a_format().read(name) is None


def test_prefix_is_common_to_all_names() -> None:
    """Listings use it."""
    assert a_format().prefix() == "shop/orders/"
    assert a_format(ODD_FORMAT).prefix() == ""


def test_dots_in_a_hub_name_are_not_wildcards() -> None:
    """A hub may be called `a.b`."""
    assert a_format(hub="a.b").read("shop/aXb/3/2017/09/19/11/45/09.avro") is None


def test_span_can_be_parsed() -> None:
    """The span in a file decides whether it is written again."""
    span = Span("f00", 3, 10, 25)

    assert Span.parse(span.text()) == span
    assert Span.parse("f00/3/10") is None
