"""The members of a classic group, with the sums that requests need: no join, sync or heartbeat visits every member.

Kept up to date with each change of a member:

1. how many members wait for the end of a rebalance,
2. how many members support each protocol, and in which order,
3. when the next session may expire. A heap has one moment for each member, which is never later than the end of its
   session; a renewed session leaves it as it is. When the moment comes, it is moved to the current end of the session.
4. which topics members subscribe to, from the first time that this is asked.

Decides nothing: `classic_group` does. Thread rule: the owner's thread only.
"""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from hubmere.broker.coordinator.consumer_group.embedded import EmbeddedProtocol, MalformedBytes
from hubmere.broker.coordinator.deadlines import Deadlines
from hubmere.broker.coordinator.membership import JoinReply, JoinRequest, JoinResponse, Member
from hubmere.broker.coordinator.refusals import GroupRefused

K = TypeVar("K", bound=Hashable)


class MemberTable:
    """Members by id, in the order in which they joined, and member ids that were issued and have not joined yet."""

    __slots__ = ("_expiry", "_instances", "_preferences", "_supporters", "_topics", "by_id", "issued", "joined_count")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        # Issued member ids with their expiry.
        self.issued: dict[str, float] = {}
        # Members whose join waits for its answer.
        self.joined_count = 0
        self._instances: dict[str, str] = {}
        self._supporters: Counter[str] = Counter()
        # How many members name these protocols, in this order.
        self._preferences: Counter[tuple[str, ...]] = Counter()
        self._expiry = Deadlines()
        self._topics: _SubscribedTopics | None = None

    # --- changes ---

    def add(self, member: Member) -> None:
        """Add a member at the end."""
        self.by_id[member.member_id] = member
        self._include(member)

    def remove(self, member: Member) -> None:
        """Remove a member."""
        del self.by_id[member.member_id]
        self._exclude(member)

    def replace(self, old: Member, new: Member) -> None:
        """The new member takes the old one's position in the order of members; the only change that visits them all."""
        self._exclude(old)
        self.by_id = {
            (new.member_id if key == old.member_id else key): (new if key == old.member_id else other)
            for key, other in self.by_id.items()
        }
        self._include(new)

    def update(self, member: Member, request: JoinRequest) -> None:
        """A member has joined again, perhaps with other protocols or timeouts."""
        self._exclude(member)
        member.set_request(request)
        self._include(member)

    def _include(self, member: Member) -> None:
        request, names = member.request, member.protocol_names
        if request.instance_id is not None:
            self._instances[request.instance_id] = member.member_id
        self._supporters.update(set(names))
        self._preferences[names] += 1
        self.joined_count += member.join_reply is not None
        self._expiry.set_earlier(member.member_id, member.expires_at)
        if self._topics is not None:
            self._topics.add(request)

    def _exclude(self, member: Member) -> None:
        request, names = member.request, member.protocol_names
        if request.instance_id is not None:
            del self._instances[request.instance_id]
        for name in set(names):
            _decrement(self._supporters, name)
        _decrement(self._preferences, names)
        self.joined_count -= member.join_reply is not None
        self._expiry.drop(member.member_id)
        if self._topics is not None:
            self._topics.remove(request)

    def issue(self, member_id: str, expires_at: float) -> None:
        """Issue an id to a client that is to join with it."""
        self.issued[member_id] = expires_at
        self._expiry.set(member_id, expires_at)

    def take_issued(self, member_id: str) -> bool:
        """Whether the id was issued and has not joined; it is forgotten."""
        if self.issued.pop(member_id, None) is None:
            return False
        self._expiry.drop(member_id)
        return True

    # --- waiting for the end of a rebalance ---

    def wait_for_join(self, member: Member, reply: JoinReply) -> None:
        """The member has joined and waits for the others."""
        assert member.join_reply is None
        member.join_reply = reply
        self.joined_count += 1

    def answer_join(self, member: Member, answer: JoinResponse | GroupRefused) -> None:
        """Answer the pending join of a member, if there is one."""
        self.joined_count -= member.join_reply is not None
        member.answer_join(answer)

    @property
    def is_complete(self) -> bool:
        """Whether every member has joined, and every issued id."""
        return not self.issued and self.joined_count == len(self.by_id)

    # --- queries ---

    def instance(self, instance_id: str | None) -> Member | None:
        """The static member with an instance id."""
        member_id = None if instance_id is None else self._instances.get(instance_id)
        return None if member_id is None else self.by_id[member_id]

    def supports_any(self, names: Iterable[str], but: Member | None) -> bool:
        """Whether all members, but one, support one of these protocols."""
        own = () if but is None else but.protocol_names
        others = len(self.by_id) - (but is not None)
        return any(self._supporters[name] - (name in own) == others for name in names)

    def preferred_protocol(self) -> str:
        """Of the protocols that all members support, the one that most members prefer."""
        count = len(self.by_id)
        votes: Counter[str] = Counter()
        for names, members in self._preferences.items():
            votes[next(name for name in names if self._supporters[name] == count)] += members
        return max(votes, key=lambda name: votes[name])

    def topics(self, embedded: EmbeddedProtocol) -> frozenset[str] | None:
        """The topics that members subscribe to in any of their protocols; None if that cannot be read."""
        if self._topics is None:
            self._topics = _SubscribedTopics(embedded)
            for member in self.by_id.values():
                self._topics.add(member.request)
        return self._topics.names

    # --- time ---

    def next_expiry(self) -> float | None:
        """When a session or an issued id may expire; never too late."""
        return self._expiry.next()

    def expire(self, now: float) -> list[Member]:
        """Forget issued ids that were not used in time; the members whose session is over, which are due again."""
        expired = []
        for member_id in self._expiry.take(now):
            member = self.by_id.get(member_id)
            if member is None:
                self.issued.pop(member_id, None)
            elif member.is_waiting:
                # It waits for our answer, which gives it a new session.
                self._expiry.set(member_id, now + member.request.session_timeout_s)
            else:
                self._expiry.set(member_id, member.expires_at)
                if member.expires_at <= now:
                    expired.append(member)
        return expired


class _SubscribedTopics:
    """How many subscriptions name each topic."""

    __slots__ = ("_counts", "_embedded", "_unreadable")

    def __init__(self, embedded: EmbeddedProtocol) -> None:
        self._embedded = embedded
        self._counts: Counter[str] = Counter()
        self._unreadable = 0

    @property
    def names(self) -> frozenset[str] | None:
        """The topics; None if a subscription cannot be read."""
        return None if self._unreadable else frozenset(self._counts)

    def add(self, request: JoinRequest) -> None:
        """Count the subscriptions of a member."""
        for protocol in request.protocols:
            topics = self._read(protocol.metadata)
            if topics is None:
                self._unreadable += 1
            else:
                self._counts.update(topics)

    def remove(self, request: JoinRequest) -> None:
        """The subscriptions of a member are gone."""
        for protocol in request.protocols:
            topics = self._read(protocol.metadata)
            if topics is None:
                self._unreadable -= 1
                continue
            for topic in topics:
                _decrement(self._counts, topic)

    def _read(self, metadata: bytes) -> frozenset[str] | None:
        try:
            return self._embedded.read_subscription(metadata).topics
        except MalformedBytes:
            return None


def _decrement(counts: Counter[K], key: K) -> None:
    """Count one less; a key that nobody has is dropped, since clients choose the keys."""
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
