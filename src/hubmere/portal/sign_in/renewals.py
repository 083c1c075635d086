"""Keeps people signed in: exchanges the refresh token of a login before its access token expires (RFC 6749, 6).

A page that is open asks its login for the caller every second, and a login whose token is about to expire starts a
renewal. A request with the cookie of a login whose token has expired meanwhile waits for the renewal. A provider that
gave no refresh token, or refuses it, ends the login with the access token, and the sign-in page says so. Tokens stay in
memory and are never part of a text.
"""

import asyncio
import logging
from dataclasses import dataclass, field

from hubmere.broker import BearerToken, Broker
from hubmere.model.clock import Clock
from hubmere.model.errors import Refusal
from hubmere.model.security.sign_in import SignInProvider
from hubmere.portal.sign_in.logins import Login

log = logging.getLogger("hubmere.portal")

# After a failure, for example of the network; the login may live on until its token expires.
RETRY_S = 10.0


@dataclass(slots=True, kw_only=True)
class _Renewal:
    provider: SignInProvider
    refresh_token: str = field(repr=False)
    peer: str
    task: asyncio.Task[None] | None = None
    retry_at: float = 0.0


class Renewals:
    """The renewals of all logins. Thread rule: the node's loop only."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._renewals: dict[Login, _Renewal] = {}

    def follow(self, login: Login, provider: SignInProvider, refresh_token: str, peer: str) -> None:
        """Renew a login from now on; without a refresh token it ends with its access token."""
        for ended in [each for each in self._renewals if not each.is_open]:
            del self._renewals[ended]
        if refresh_token:
            self._renewals[login] = _Renewal(
                provider=provider,
                refresh_token=refresh_token,
                peer=peer,
            )
            login.on_expiring = lambda: self._start(login)

    async def ensure(self, login: Login) -> None:
        """Wait for the renewal of a login whose token expires now."""
        if login.is_expiring(self._clock.now_ms() / 1000):
            self._start(login)
            renewal = self._renewals.get(login)
            if renewal is not None and renewal.task is not None:
                await asyncio.wait([renewal.task])

    async def stop(self) -> None:
        """End the renewals that are under way."""
        tasks = [renewal.task for renewal in self._renewals.values() if renewal.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, login: Login) -> None:
        renewal = self._renewals.get(login)
        if renewal is None or not login.is_open:
            return
        if renewal.task is not None or self._clock.monotonic() < renewal.retry_at:
            return
        renewal.task = asyncio.create_task(self._renew(login, renewal))

    async def _renew(self, login: Login, renewal: _Renewal) -> None:
        try:
            tokens = await renewal.provider.refresh(renewal.refresh_token)
            shown, peer, broker = BearerToken(tokens.access_token), renewal.peer, self._broker
            now_s = self._clock.now_ms() / 1000
            if not login.renew(lambda at_s: broker.sign_in_person(shown, address=peer, now_s=at_s), now_s):
                log.warning("%s answered a renewal with a token of another person", renewal.provider.name)
                del self._renewals[login]
                return
            renewal.refresh_token = tokens.refresh_token or renewal.refresh_token
        except Refusal as refusal:
            log.info("a sign-in at %s was not renewed: %s", renewal.provider.name, refusal.text())
            renewal.retry_at = self._clock.monotonic() + RETRY_S
        except Exception:  # the top of a task: the login ends with its token
            log.exception("the renewal of a sign-in failed")
            renewal.retry_at = self._clock.monotonic() + RETRY_S
        finally:
            renewal.task = None
