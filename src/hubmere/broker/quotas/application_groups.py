"""Application groups: clients known by one credential, held to rates of their own and shut out together.

A group names a rule (reference: service 4.2 and 5); whoever signs in by it is of the group, whatever the hub. Its rates
count over the whole namespace. What is published beyond them is refused whole, with the group and the policy named;
what is read beyond them is delayed, since readers have no place for such an error. Each client holds a leash, which a
change of the groups takes in or lets out while the client is connected; where no group names it, that is one look at
None. Time is an argument, in monotonic seconds.
"""

from collections.abc import Iterable, Mapping, Sequence

from hubmere.broker.quotas.throughput import FairBucket
from hubmere.model.entity import ApplicationGroup, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.errors import ApplicationGroupThrottled
from hubmere.model.names import fold

# What an identifier says before its `=`, and whether it means rules of hubs; the oldest form means both. Applications
# of Entra are never met here: a node takes no tokens of theirs.
_KINDS: Mapping[str, tuple[bool, ...]] = {
    "namespacesaskeyname": (False,),
    "entitysaskeyname": (True,),
    "saskeyname": (False, True),
}
_INCOMING = (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.INCOMING_MESSAGES)
_BYTES = (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.OUTGOING_BYTES)
# Buckets are shared among hubs elsewhere; a group's is its own.
_ALL = ""


def names_rule(client_id: str, rule: str, *, is_of_hub: bool) -> bool:
    """Whether the identifier of a group means a rule of the namespace, or of a hub."""
    kind, _, name = client_id.partition("=")
    return is_of_hub in _KINDS.get(fold(kind), ()) and fold(name) == fold(rule)


def group_of(groups: Iterable[ApplicationGroup], rule: str, *, is_of_hub: bool) -> ApplicationGroup | None:
    """The group of a rule's clients, if they have one."""
    return next((group for group in groups if names_rule(group.client_id, rule, is_of_hub=is_of_hub)), None)


class _Limit:
    """One policy and what is left of its rate."""

    __slots__ = ("_bucket", "_counts_bytes", "policy")

    def __init__(self, policy: ThrottlingPolicy, now: float) -> None:
        self.policy = policy
        self._counts_bytes = policy.metric in _BYTES
        self._bucket = FairBucket(policy.rate_per_s, now)

    def change(self, policy: ThrottlingPolicy, now: float) -> None:
        """Take another rate, and go on from where the old one was."""
        self.policy = policy
        self._bucket.change_rate(policy.rate_per_s, now)

    def is_over(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether so much is too much now."""
        return self._bucket.missing(_ALL, size_bytes if self._counts_bytes else events, now) > 0

    def spend(self, size_bytes: int, events: int, now: float) -> None:
        """Count it."""
        self._bucket.spend(_ALL, size_bytes if self._counts_bytes else events, now)

    def delay(self, now: float) -> float:
        """Seconds until something is left again."""
        return self._bucket.debt_seconds(_ALL, now)


class GroupLimits:
    """The rates of one group.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_incoming", "_outgoing", "group")

    def __init__(self, group: ApplicationGroup, now: float) -> None:
        self._incoming: Sequence[_Limit] = ()
        self._outgoing: Sequence[_Limit] = ()
        self.group = group
        self.follow(group, now)

    def follow(self, group: ApplicationGroup, now: float) -> None:
        """Take changed policies; one that has kept its name and metric keeps its account."""
        known = {(limit.policy.name, limit.policy.metric): limit for limit in (*self._incoming, *self._outgoing)}
        limits = []
        for policy in group.policies:
            limit = known.get((policy.name, policy.metric))
            if limit is None:
                limit = _Limit(policy, now)
            else:
                limit.change(policy, now)
            limits.append(limit)
        self.group = group
        self._incoming = [limit for limit in limits if limit.policy.metric in _INCOMING]
        self._outgoing = [limit for limit in limits if limit.policy.metric not in _INCOMING]

    def require_ingress(self, size_bytes: int, events: int, now: float) -> None:
        """Refuse a publication that is too much; nothing is counted yet."""
        for limit in self._incoming:
            if limit.is_over(size_bytes, events, now):
                raise ApplicationGroupThrottled(self.group.name, limit.policy.name)

    def has_ingress(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether so much can be published."""
        return not any(limit.is_over(size_bytes, events, now) for limit in self._incoming)

    def charge_ingress(self, size_bytes: int, events: int, now: float) -> None:
        """Count what was published."""
        for limit in self._incoming:
            limit.spend(size_bytes, events, now)

    def charge_egress(self, size_bytes: int, events: int, now: float) -> None:
        """Count what was delivered; going below zero delays the next delivery."""
        for limit in self._outgoing:
            limit.spend(size_bytes, events, now)

    def egress_delay(self, now: float) -> float:
        """Seconds until events may be delivered again; 0 when they may now."""
        return max((limit.delay(now) for limit in self._outgoing), default=0.0)


class ClientQuota:
    """What one kind of client is held to now: the rates of its group, or None."""

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: GroupLimits | None = None

    @property
    def group(self) -> str:
        """The name of the group, if there is one."""
        return "" if self.limits is None else self.limits.group.name


# Those who belong to no group: the administrator, the portal, and whoever is asked for nothing.
FREE = ClientQuota()


class ApplicationGroups:
    """The groups of one namespace, and the leashes of those who were met.

    Thread rule: the owner's thread only. Leashes are as many as there are rules.
    """

    __slots__ = ("_groups", "_leashes", "_limits")

    def __init__(self) -> None:
        self._groups: Sequence[ApplicationGroup] = ()
        self._limits: dict[str, GroupLimits] = {}
        self._leashes: dict[tuple[str, bool], ClientQuota] = {}

    def follow(self, groups: Sequence[ApplicationGroup], now: float) -> None:
        """Take the groups as they are now, effective on those who are connected."""
        known, self._limits = self._limits, {}
        for group in groups:
            limits = self._limits[fold(group.name)] = known.get(fold(group.name)) or GroupLimits(group, now)
            limits.follow(group, now)
        self._groups = groups
        for (rule, is_of_hub), client_quota in self._leashes.items():
            client_quota.limits = self._limits_of(rule, is_of_hub)

    def client_quota(self, rule: str, *, is_of_hub: bool) -> ClientQuota:
        """The leash of whoever signed in by a rule."""
        client_quota = self._leashes.get((rule, is_of_hub))
        if client_quota is None:
            client_quota = self._leashes[rule, is_of_hub] = ClientQuota()
            client_quota.limits = self._limits_of(rule, is_of_hub)
        return client_quota

    def _limits_of(self, rule: str, is_of_hub: bool) -> GroupLimits | None:
        group = group_of(self._groups, rule, is_of_hub=is_of_hub)
        return None if group is None or not group.policies else self._limits[fold(group.name)]
