"""Device codes (RFC 8628): a program shows a code, a person enters it and signs in, the program gets a token."""

import secrets
from dataclasses import dataclass

from hubmere.endpoints.http.identity.directory import User

LIFETIME_S = 900.0
INTERVAL_S = 1
# Codes at a time: of programs on a developer's machine.
MAX_CODES = 1000
# Wrong passwords for one code; then the program has to ask for another.
MAX_ATTEMPTS = 10
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
_CODE_BYTES = 32


@dataclass(slots=True, kw_only=True)
class DeviceCode:
    """One sign-in that waits for a person."""

    code: str
    user_code: str
    client_id: str
    audience: str
    expires_at: float
    attempts: int = 0
    user: User | None = None


class DeviceCodes:
    """The codes that are in use. Thread rule: the node's loop only; time is monotonic."""

    def __init__(self) -> None:
        self._codes: dict[str, DeviceCode] = {}

    def begin(self, client_id: str, audience: str, now: float) -> DeviceCode:
        """A new code; the oldest one goes when there are too many."""
        for code in [one.code for one in self._codes.values() if now >= one.expires_at]:
            del self._codes[code]
        if len(self._codes) >= MAX_CODES:
            del self._codes[next(iter(self._codes))]
        made = DeviceCode(
            code=secrets.token_urlsafe(_CODE_BYTES),
            user_code="".join(secrets.choice(_LETTERS) for _ in range(8)),
            client_id=client_id,
            audience=audience,
            expires_at=now + LIFETIME_S,
        )
        self._codes[made.code] = made
        return made

    def find(self, code: str, now: float) -> DeviceCode | None:
        """A code that a program shows; None if it is unknown or has expired."""
        found = self._codes.get(code)
        return found if found is not None and now < found.expires_at else None

    def find_by_user(self, user_code: str, now: float) -> DeviceCode | None:
        """A code that a person enters, in any case and with dashes or blanks."""
        wanted = user_code.upper().replace("-", "").replace(" ", "")
        return next((one for one in self._codes.values() if one.user_code == wanted and now < one.expires_at), None)

    def count_attempt(self, code: DeviceCode) -> None:
        """A wrong password was entered for a code."""
        code.attempts += 1
        if code.attempts >= MAX_ATTEMPTS:
            self._codes.pop(code.code, None)

    def end(self, code: DeviceCode) -> None:
        """The program has its token: a code is used once."""
        self._codes.pop(code.code, None)
