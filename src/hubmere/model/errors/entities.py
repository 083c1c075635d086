"""Refusals about entities: missing, existing, in conflict, disabled, or beyond a limit (and which setting lifts it)."""

from hubmere.model.errors.base import FIXED_LIMIT, Refusal, lifting_hint


class NotFound(Refusal):
    """A named entity does not exist."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def text(self) -> str:
        return f"The messaging entity '{self.resource}' could not be found."


class NamespaceNotFound(NotFound):
    """No such namespace on this node."""


class HubNotFound(NotFound):
    """No such event hub in the namespace."""


class GroupNotFound(NotFound):
    """No such consumer group on the hub."""


class RuleNotFound(NotFound):
    """No such authorization rule."""


class AliasNotFound(NotFound):
    """No such geo-recovery alias."""


class PartitionNotFound(Refusal):
    """The hub has no partition with this id."""

    def __init__(self, hub: str, partition: str, count: int) -> None:
        super().__init__(hub, partition, count)
        self.hub = hub
        self.partition = partition
        self.count = count

    def text(self) -> str:
        return (
            f"The specified partition is invalid for an EventHub partition sender or receiver. It should be between 0 "
            f"and {self.count - 1}, but '{self.partition}' was given for '{self.hub}'."
        )


class AlreadyExists(Refusal):
    """An entity with this name exists."""

    def __init__(self, resource: str) -> None:
        super().__init__(resource)
        self.resource = resource

    def text(self) -> str:
        return f"The messaging entity '{self.resource}' already exists."


class Conflict(Refusal):
    """The entity's state does not allow this now."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why

    def text(self) -> str:
        return self.why


class EntityUpdated(Refusal):
    """The hub's settings changed; readers must reconnect."""

    def __init__(self, hub: str) -> None:
        super().__init__(hub)
        self.hub = hub

    def text(self) -> str:
        return "Entity was updated."


class FailedOver(Conflict):
    """The pairing has ended: its secondary has taken over the alias."""

    def __init__(self, alias: str) -> None:
        super().__init__(f"The alias '{alias}' was failed over and is served here now.")
        self.alias = alias


class AliasElsewhere(Refusal):
    """A client used an alias that the partner on another node serves now."""

    def __init__(self, alias: str, partner: str) -> None:
        super().__init__(alias, partner)
        self.alias = alias
        self.partner = partner

    def text(self) -> str:
        return (
            f"This node is the secondary of the alias '{self.alias}'; it is served by the namespace '{self.partner}'. "
            "Point the alias at that node, or fail over to this one."
        )


class NotInTier(Refusal):
    """The tier does not have the feature."""

    def __init__(self, feature: str, tier: str, setting: str) -> None:
        super().__init__(feature, tier, setting)
        self.feature = feature
        self.tier = tier
        self.setting = setting  # the field of `Limits` that adds it

    def text(self) -> str:
        return f"{self.feature} is not available in the {self.tier} tier. {lifting_hint(self.setting)}"


class EntityDisabled(Refusal):
    """The hub's status does not allow the operation."""

    def __init__(self, hub: str, status: str) -> None:
        super().__init__(hub, status)
        self.hub = hub
        self.status = status

    def text(self) -> str:
        return f"The messaging entity '{self.hub}' is currently disabled for this operation (status {self.status})."


class LimitReached(Refusal):
    """A count limit of the tier is reached (service sub-code 40300)."""

    def __init__(self, what: str, limit: int, setting: str | None = None) -> None:
        super().__init__(what, limit, setting)
        self.what = what
        self.limit = limit
        self.setting = setting  # the field of `Limits` that sets it; None if it is fixed

    def text(self) -> str:
        hint = FIXED_LIMIT if self.setting is None else lifting_hint(self.setting)
        return f"The maximum number of {self.what} ({self.limit}) has been reached. {hint}"
