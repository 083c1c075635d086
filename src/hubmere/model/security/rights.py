"""The rights of the data plane: Listen, Send and Manage, which authorization rules and roles give."""

from collections.abc import Iterable, Mapping
from enum import Flag

from hubmere.model.errors import InvalidArgument
from hubmere.model.names import fold


class Rights(Flag):
    """The rights of a rule; Manage implies the other two."""

    NONE = 0
    LISTEN = 1
    SEND = 2
    MANAGE = 4
    ALL = LISTEN | SEND | MANAGE

    @classmethod
    def parse(cls, names: Iterable[str]) -> "Rights":
        """Parse rights from their case-insensitive names; at least one, and Manage only together with the others."""
        rights = cls.NONE
        for name in names:
            if fold(name) not in _RIGHTS:
                raise InvalidArgument("right", name, "Listen, Send or Manage")
            rights |= _RIGHTS[fold(name)]
        if rights is cls.NONE:
            raise InvalidArgument("set of rights", "", "at least one of Listen, Send and Manage")
        if cls.MANAGE in rights and rights is not cls.ALL:
            raise InvalidArgument("set of rights", ", ".join(rights.names), "Manage needs Send and Listen as well")
        return rights

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rights in the order of the service."""
        return tuple(name for name, right in _RIGHTS_BY_NAME.items() if right in self)

    def allows(self, wanted: "Rights") -> bool:
        """Whether at least one of the wanted rights is included; Manage includes all."""
        return bool(self.value & (wanted.value | _MANAGE_BIT))


# Checked on every request: plain numbers, because arithmetic on flags is slower than the rest of the check.
_MANAGE_BIT: int = Rights.MANAGE.value

_RIGHTS_BY_NAME: Mapping[str, Rights] = {"Manage": Rights.MANAGE, "Send": Rights.SEND, "Listen": Rights.LISTEN}
_RIGHTS: Mapping[str, Rights] = {fold(name): right for name, right in _RIGHTS_BY_NAME.items()}
