"""A node announces the versions of transactions that the storage behind it can serve."""

import pytest

from hubmere.endpoints.kafka.admin.served_versions import (
    NEW_TRANSACTIONS,
    advertised_versions,
    finalized_features,
    served_versions,
    supported_features,
)
from hubmere.endpoints.kafka.endpoint import HANDLERS
from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.fetch import FETCH
from hubmere.wire.kafka.messages.produce import PRODUCE, TRANSACTIONS_SINCE
from hubmere.wire.kafka.messages.transactions import END_TXN, TXN_OFFSET_COMMIT
from hubmere.wire.kafka.schema import VersionRange


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_node_without_the_newer_transactions_does_not_offer_them(transaction_version: int) -> None:
    """A client that left AddPartitionsToTxn out would write outside of its transaction."""
    served = served_versions(HANDLERS, transaction_version)

    assert served[PRODUCE.key].high < TRANSACTIONS_SINCE
    assert (served[END_TXN.key], served[TXN_OFFSET_COMMIT.key]) == (VersionRange(0, 3), VersionRange(0, 3))
    assert not supported_features(transaction_version)
    assert not finalized_features(transaction_version)


def test_gateway_offers_the_transactions_of_its_cluster() -> None:
    """Clients use them only if the feature is in use and all three APIs have the version."""
    served = served_versions(HANDLERS, NEW_TRANSACTIONS)
    (feature,) = finalized_features(NEW_TRANSACTIONS)

    assert all(served[key] == APIS[key].versions for key in HANDLERS)
    assert (served[PRODUCE.key].high, served[END_TXN.key].high, served[TXN_OFFSET_COMMIT.key].high) == (12, 5, 5)
    assert (feature.name, feature.max_version_level) == ("transaction.version", 2)


def test_other_versions_do_not_depend_on_transactions() -> None:
    """Old versions of Produce are advertised although they are refused (librdkafka looks for them)."""
    assert served_versions(HANDLERS)[FETCH.key] == FETCH.versions
    assert advertised_versions(HANDLERS)[PRODUCE.key] == VersionRange(0, 9)
