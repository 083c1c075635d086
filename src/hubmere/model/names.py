"""Names of namespaces, hubs, groups, rules, publishers and partitions: validated once here, trusted by all other
packages.

A name keeps its case and is looked up case-insensitively, by the key that `fold` returns. Lengths and characters are
those of the service (naming and quotas pages); where these pages disagree, the wider range applies.
"""

import re
from dataclasses import dataclass
from typing import NewType

from hubmere.model.errors import InvalidName, PartitionNotFound

NamespaceName = NewType("NamespaceName", str)
HubName = NewType("HubName", str)
GroupName = NewType("GroupName", str)
RuleName = NewType("RuleName", str)
AliasName = NewType("AliasName", str)
ApplicationGroupName = NewType("ApplicationGroupName", str)
PublisherName = NewType("PublisherName", str)
KafkaGroupId = NewType("KafkaGroupId", str)

# The group that every hub has, and the rule that every new namespace has.
DEFAULT_GROUP = GroupName("$Default")
ROOT_RULE = RuleName("RootManageSharedAccessKey")

# Longest partition id that is parsed: no tier has more than 1024 partitions.
_PARTITION_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """The rule for one kind of name; `allowed` is the part of the error text that describes it."""

    kind: str
    shortest: int
    longest: int
    pattern: re.Pattern[str]
    allowed: str

    def check(self, text: str) -> str:
        """Return the name if it is valid; raises InvalidName otherwise."""
        if self.shortest <= len(text) <= self.longest and self.pattern.fullmatch(text):
            return text
        raise InvalidName(self.kind, text, f"{self.shortest} to {self.longest} characters, {self.allowed}")


_ENTITY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENTITY_WITH_SLASH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_DNS = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_SEGMENT = re.compile(r"[^/\x00-\x1f\x7f]+")
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]+")

_ENTITY_ALLOWED = "letters, digits, '.', '-' and '_', beginning and ending with a letter or digit"
_DNS_ALLOWED = "letters, digits and '-', beginning with a letter, ending with a letter or digit"


def _entity_rule(kind: str, longest: int) -> NameRule:
    return NameRule(kind=kind, shortest=1, longest=longest, pattern=_ENTITY, allowed=_ENTITY_ALLOWED)


NAMESPACE_RULE = NameRule(kind="namespace name", shortest=6, longest=50, pattern=_DNS, allowed=_DNS_ALLOWED)
HUB_RULE = _entity_rule("event hub name", 256)
# The official emulator accepts '/' in a hub's name; here only its configuration file may contain such a name.
EMULATOR_HUB_RULE = NameRule(
    kind="event hub name",
    shortest=1,
    longest=256,
    pattern=_ENTITY_WITH_SLASH,
    allowed="letters, digits, '.', '-', '_' and '/', beginning and ending with a letter or digit",
)
GROUP_RULE = _entity_rule("consumer group name", 50)
ACCESS_RULE_RULE = _entity_rule("authorization rule name", 256)
APPLICATION_GROUP_RULE = _entity_rule("application group name", 256)
DEFAULT_STORAGE_ACCOUNT = "hubmerestorage"
STORAGE_ACCOUNT_RULE = NameRule(
    kind="storage account name",
    shortest=3,
    longest=24,
    pattern=re.compile("[a-z0-9]+"),
    allowed="lower-case letters and digits",
)
CONTAINER_RULE = NameRule(
    kind="container name",
    shortest=3,
    longest=63,
    pattern=re.compile(r"[a-z0-9](?:-?[a-z0-9])*"),
    allowed="lower-case letters, digits and single hyphens between them",
)
ALIAS_RULE = NameRule(kind="geo-recovery alias", shortest=1, longest=50, pattern=_DNS, allowed=_DNS_ALLOWED)
PUBLISHER_RULE = NameRule(
    kind="publisher name", shortest=1, longest=256, pattern=_SEGMENT, allowed="without '/' and control characters"
)
KAFKA_GROUP_RULE = NameRule(
    kind="Kafka group id", shortest=1, longest=256, pattern=_PRINTABLE, allowed="without control characters"
)


def fold(name: str) -> str:
    """Case-insensitive lookup key of a name."""
    return name.lower()


def namespace_name(text: str) -> NamespaceName:
    """A namespace's name."""
    return NamespaceName(NAMESPACE_RULE.check(text))


def hub_name(text: str) -> HubName:
    """An event hub's name."""
    return HubName(HUB_RULE.check(text))


def emulator_hub_name(text: str) -> HubName:
    """An event hub's name as the emulator's configuration file may write it."""
    return HubName(EMULATOR_HUB_RULE.check(text))


def group_name(text: str) -> GroupName:
    """A consumer group's name; `$Default` in any case is the default group."""
    if fold(text) == fold(DEFAULT_GROUP):
        return DEFAULT_GROUP
    return GroupName(GROUP_RULE.check(text))


def rule_name(text: str) -> RuleName:
    """An authorization rule's name."""
    return RuleName(ACCESS_RULE_RULE.check(text))


def alias_name(text: str) -> AliasName:
    """A geo-recovery alias: shares the name space of namespaces."""
    return AliasName(ALIAS_RULE.check(text))


def application_group_name(text: str) -> ApplicationGroupName:
    """An application group's name."""
    return ApplicationGroupName(APPLICATION_GROUP_RULE.check(text))


def publisher_name(text: str) -> PublisherName:
    """A publisher's name: any single URI segment; publishers are not created before use."""
    return PublisherName(PUBLISHER_RULE.check(text))


def kafka_group_id(text: str) -> KafkaGroupId:
    """A Kafka group's id: not created before use, and case-sensitive as in Kafka."""
    return KafkaGroupId(KAFKA_GROUP_RULE.check(text))


def partition_number(text: str, *, hub: str, count: int) -> int:
    """The number of a partition from its id, a decimal text between 0 and `count - 1`."""
    is_decimal = text.isascii() and text.isdigit() and len(text) <= _PARTITION_DIGITS
    if not is_decimal or text != str(int(text)) or int(text) >= count:
        raise PartitionNotFound(hub, text, count)
    return int(text)
