"""Fetches the signing keys of OAuth issuers: the discovery document, then the JWK set that it names.

OpenID Connect Discovery 1.0, sections 3 and 4: the document lies below the issuer's address and names the same issuer.
The broker decides when keys are fetched (`broker.IssuerKeys`). Requests are made in worker threads, without redirects,
with limits on time and size. Endpoints may not import `client`, which has an HTTP client of its own. Python's client is
loaded for the first request: many nodes trust no issuer.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from hubmere.broker import IssuerKeys, MalformedKeys, TrustedKey, read_key_set
from hubmere.model.clock import Clock

log = logging.getLogger("hubmere.identity")

# Both requests together; clients wait for their sign-in at least this long.
FETCH_SECONDS = 10.0
_SOCKET_SECONDS = 5.0
# A dozen keys with certificates have 30 KB.
MAX_DOCUMENT_BYTES = 256 * 1024
DISCOVERY = "/.well-known/openid-configuration"
_OK = 200


class FetchFailed(Exception):
    """Why the keys of an issuer could not be fetched."""


class KeyFetcher:
    """Fetches keys when the broker asks for them. Thread rule: the node's loop only.

    `ca_files` has the certificate authorities of issuers that do not use a public one.
    """

    def __init__(self, clock: Clock, ca_files: Mapping[str, str]) -> None:
        self._clock = clock
        self._ca_files = ca_files
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(self, keys: IssuerKeys) -> None:
        """Start fetching the keys of an issuer; `IssuerKeys.on_fetched` is called once, whatever happens."""
        task = asyncio.get_running_loop().create_task(self._fetch(keys))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fetch(self, keys: IssuerKeys) -> None:
        found = None
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                found = await asyncio.to_thread(_fetch_keys, keys.issuer, self._ca_files.get(keys.issuer))
            log.info("fetched %d signing keys of the issuer %s", len(found), keys.issuer)
        except (FetchFailed, MalformedKeys) as why:
            log.warning("the signing keys of the issuer %s cannot be fetched: %s", keys.issuer, why)
        except TimeoutError:
            log.warning("the issuer %s does not answer within %g s", keys.issuer, FETCH_SECONDS)
        finally:
            keys.on_fetched(found, self._clock.now_ms() / 1000)

    async def stop(self) -> None:
        """End what is running."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _fetch_keys(issuer: str, ca_file: str | None) -> tuple[TrustedKey, ...]:
    try:
        document = json.loads(get(issuer.rstrip("/") + DISCOVERY, ca_file))
        named, address = document["issuer"], document["jwks_uri"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FetchFailed("its discovery document is not an object with 'issuer' and 'jwks_uri'") from None
    if named != issuer:
        raise FetchFailed("its discovery document names another issuer")
    if not isinstance(address, str) or not (address.startswith("https://") or issuer.startswith("http://")):
        raise FetchFailed("its 'jwks_uri' is not an https address")
    return read_key_set(get(address, ca_file))


def get(url: str, ca_file: str | None) -> bytes:
    """The document at an address of an issuer; FetchFailed if there is none."""
    status, body = _request("GET", url, ca_file, None, {"Accept": "application/json"})
    if status != _OK:
        raise FetchFailed(f"{urlsplit(url).netloc} answers with status {status}")
    return body


def post_form(url: str, form: Mapping[str, str], ca_file: str | None) -> tuple[int, bytes]:
    """Status and body of the answer to a form (RFC 6749, 4.1.3)."""
    headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
    return _request("POST", url, ca_file, urlencode(form).encode(), headers)


def _request(
    method: str, url: str, ca_file: str | None, content: bytes | None, headers: Mapping[str, str]
) -> tuple[int, bytes]:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    parts = urlsplit(url)
    connection: HTTPConnection
    try:
        if parts.scheme == "http":
            connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_SOCKET_SECONDS)
        else:
            context = ssl.create_default_context(cafile=ca_file)
            connection = HTTPSConnection(parts.hostname or "", parts.port, timeout=_SOCKET_SECONDS, context=context)
        try:
            target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
            connection.request(method, target, body=content, headers=dict(headers))
            response = connection.getresponse()
            body = response.read(MAX_DOCUMENT_BYTES + 1)
        finally:
            connection.close()
    except (OSError, HTTPException, ValueError) as error:
        raise FetchFailed(f"{parts.netloc}: {error or type(error).__name__}") from error
    if len(body) > MAX_DOCUMENT_BYTES:
        raise FetchFailed(f"a document of {parts.netloc} has more than {MAX_DOCUMENT_BYTES} bytes")
    return response.status, body
