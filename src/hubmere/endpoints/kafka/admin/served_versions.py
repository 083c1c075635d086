"""The versions of each API that a node serves.

All that the wire declares, except the newest ones of transactions: they need `transaction.version` 2 (KIP-890), with
which a batch adds its partition to a transaction, and the end of a transaction gives the producer another epoch. A node
with its own storage ends transactions as Kafka before 4.0 does. A gateway has them if its Kafka cluster does.
"""

from collections.abc import Iterable
from typing import Final

from hubmere.wire.kafka.messages import APIS
from hubmere.wire.kafka.messages.metadata import FinalizedFeature, SupportedFeature
from hubmere.wire.kafka.messages.produce import PRODUCE
from hubmere.wire.kafka.messages.transactions import ADD_OFFSETS_TO_TXN, END_TXN, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT
from hubmere.wire.kafka.schema import VersionRange

TRANSACTION_FEATURE: Final = "transaction.version"
NEW_TRANSACTIONS: Final = 2
# The newest versions without that feature.
_BEFORE: Final = {
    PRODUCE.key: 9,
    INIT_PRODUCER_ID.key: 4,
    ADD_OFFSETS_TO_TXN.key: 3,
    END_TXN.key: 3,
    TXN_OFFSET_COMMIT.key: 3,
}


def served_versions(keys: Iterable[int], transaction_version: int = 0) -> dict[int, VersionRange]:
    """The versions of each API in which requests are read."""
    return {key: _limit_versions(key, APIS[key].versions, transaction_version) for key in keys}


def advertised_versions(keys: Iterable[int], transaction_version: int = 0) -> dict[int, VersionRange]:
    """The versions of each API that a node announces to its clients."""
    return {key: _limit_versions(key, APIS[key].advertised, transaction_version) for key in keys}


def _limit_versions(key: int, declared: VersionRange, transaction_version: int) -> VersionRange:
    if transaction_version >= NEW_TRANSACTIONS or key not in _BEFORE:
        return declared
    return VersionRange(declared.low, _BEFORE[key])


def supported_features(transaction_version: int) -> tuple[SupportedFeature, ...]:
    """The features that a node announces to its clients; none without the newer transactions."""
    if transaction_version < NEW_TRANSACTIONS:
        return ()
    # Before version 4 of ApiVersions, a minimum of 0 must not be sent.
    return (SupportedFeature(name=TRANSACTION_FEATURE, min_version=1, max_version=NEW_TRANSACTIONS),)


def finalized_features(transaction_version: int) -> tuple[FinalizedFeature, ...]:
    """The features in use; none without the newer transactions."""
    if transaction_version < NEW_TRANSACTIONS:
        return ()
    level = NEW_TRANSACTIONS
    return (FinalizedFeature(name=TRANSACTION_FEATURE, max_version_level=level, min_version_level=level),)
