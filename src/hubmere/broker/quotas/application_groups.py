"""Application groups: clients that share one credential have their own rates, and can be disabled together.

A group names a rule or an application (reference: service 4.2 and 5). Every client that authenticates by it belongs to
the group, on any hub. The rates count over the whole namespace. A publication beyond them is refused as a whole, with
the names of the group and the policy; reads beyond them are delayed, since readers have no place for such an error.
Each client holds a `ClientQuota`, which is updated in place when groups change. Its `limits` are None for clients in no
group. Time is an argument, in monotonic seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from hubmere.broker.quotas.throughput import FairBucket
from hubmere.model.entity import ApplicationGroup, ThrottlingMetric, ThrottlingPolicy
from hubmere.model.errors import ApplicationGroupThrottled
from hubmere.model.names import fold


class ClientKind(Enum):
    """How a client has signed in: by a rule of the namespace, by a rule of a hub, or as an OAuth application."""

    NAMESPACE_RULE = 1
    HUB_RULE = 2
    APPLICATION = 3


# Kinds of client identifiers (the text before `=`), and the clients that they can mean.
_KINDS: Mapping[str, tuple[ClientKind, ...]] = {
    "namespacesaskeyname": (ClientKind.NAMESPACE_RULE,),
    "entitysaskeyname": (ClientKind.HUB_RULE,),
    "saskeyname": (ClientKind.NAMESPACE_RULE, ClientKind.HUB_RULE),
    "aadappid": (ClientKind.APPLICATION,),
}
_INCOMING = (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.INCOMING_MESSAGES)
_BYTES = (ThrottlingMetric.INCOMING_BYTES, ThrottlingMetric.OUTGOING_BYTES)
# A bucket can be shared by hubs; that of a group is not.
_ALL = ""


def names_client(client_id: str, client: str, kind: ClientKind) -> bool:
    """Whether a client identifier means clients of this rule or application."""
    word, _, name = client_id.partition("=")
    return kind in _KINDS.get(fold(word), ()) and fold(name) == fold(client)


def group_of(groups: Iterable[ApplicationGroup], client: str, kind: ClientKind) -> ApplicationGroup | None:
    """The group to which clients of a rule or application belong, or None."""
    return next((group for group in groups if names_client(group.client_id, client, kind)), None)


class _Limit:
    """One policy and its token bucket."""

    __slots__ = ("_bucket", "_counts_bytes", "policy")

    def __init__(self, policy: ThrottlingPolicy, now: float) -> None:
        self.policy = policy
        self._counts_bytes = policy.metric in _BYTES
        self._bucket = FairBucket(policy.rate_per_s, now)

    def change(self, policy: ThrottlingPolicy, now: float) -> None:
        """Change the rate; the balance of the bucket is kept."""
        self.policy = policy
        self._bucket.change_rate(policy.rate_per_s, now)

    def is_over(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether this amount exceeds the rate now."""
        return self._bucket.missing(_ALL, size_bytes if self._counts_bytes else events, now) > 0

    def has(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether the rate allows this amount now, also in many small pieces.

        A full bucket allows one publication of any size, but not many that are larger together than the bucket.
        """
        amount = size_bytes if self._counts_bytes else events
        return amount <= self._bucket.capacity and not self._bucket.missing(_ALL, amount, now)

    def spend(self, size_bytes: int, events: int, now: float) -> None:
        """Take the amount from the bucket."""
        self._bucket.spend(_ALL, size_bytes if self._counts_bytes else events, now)

    def delay(self, now: float) -> float:
        """Seconds until the bucket has tokens again."""
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
        """Apply changed policies; a policy with the same name and metric keeps its balance."""
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
        """Refuse a publication that exceeds a rate; nothing is charged yet."""
        for limit in self._incoming:
            if limit.is_over(size_bytes, events, now):
                raise ApplicationGroupThrottled(self.group.name, limit.policy.name)

    def has_ingress(self, size_bytes: int, events: int, now: float) -> bool:
        """Whether this amount may be published now, in any pieces."""
        return all(limit.has(size_bytes, events, now) for limit in self._incoming)

    def charge_ingress(self, size_bytes: int, events: int, now: float) -> None:
        """Charge what was published."""
        for limit in self._incoming:
            limit.spend(size_bytes, events, now)

    def charge_egress(self, size_bytes: int, events: int, now: float) -> None:
        """Charge what was delivered; a negative balance delays the next delivery."""
        for limit in self._outgoing:
            limit.spend(size_bytes, events, now)

    def egress_delay(self, now: float) -> float:
        """Seconds until events may be delivered again; 0 if they may now."""
        return max((limit.delay(now) for limit in self._outgoing), default=0.0)


class ClientQuota:
    """The current limits of all clients of one rule: those of its application group, or None."""

    __slots__ = ("limits",)

    def __init__(self) -> None:
        self.limits: GroupLimits | None = None

    @property
    def group(self) -> str:
        """Name of the group; empty without one."""
        return "" if self.limits is None else self.limits.group.name


# For clients in no group: the administrator, the portal, and clients that need not authenticate.
FREE = ClientQuota()


class ApplicationGroups:
    """The groups of one namespace, and the quotas of its clients: at most one per rule or application.

    Thread rule: the owner's thread only.
    """

    __slots__ = ("_groups", "_limits", "_quotas")

    def __init__(self) -> None:
        self._groups: Sequence[ApplicationGroup] = ()
        self._limits: dict[str, GroupLimits] = {}
        self._quotas: dict[tuple[str, ClientKind], ClientQuota] = {}

    def follow(self, groups: Sequence[ApplicationGroup], now: float) -> None:
        """Apply the current groups, effective for connected clients too."""
        known, self._limits = self._limits, {}
        for group in groups:
            limits = self._limits[fold(group.name)] = known.get(fold(group.name)) or GroupLimits(group, now)
            limits.follow(group, now)
        self._groups = groups
        for (client, kind), client_quota in self._quotas.items():
            client_quota.limits = self._limits_of(client, kind)

    def client_quota(self, client: str, kind: ClientKind) -> ClientQuota:
        """The quota of clients that authenticated by a rule, or as an application."""
        client_quota = self._quotas.get((client, kind))
        if client_quota is None:
            client_quota = self._quotas[client, kind] = ClientQuota()
            client_quota.limits = self._limits_of(client, kind)
        return client_quota

    def _limits_of(self, client: str, kind: ClientKind) -> GroupLimits | None:
        group = group_of(self._groups, client, kind)
        return None if group is None or not group.policies else self._limits[fold(group.name)]
