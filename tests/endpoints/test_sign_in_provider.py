"""The token endpoint of an identity provider, as the portal uses it: codes and refresh tokens are exchanged."""

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest

from endpoints.identity_issuer import HttpIssuer
from hubmere.endpoints.sign_in_provider import OpenIdProvider, ProviderSettings
from hubmere.model.clock import SystemClock
from hubmere.model.security.sign_in import SignInFailed


class TokenIssuer(HttpIssuer):
    """An issuer with a token endpoint, whose answer the test chooses."""

    def __init__(self) -> None:
        super().__init__()
        self.status = 200
        self.tokens: dict[str, object] = {}
        self.forms: list[dict[str, str]] = []

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(super()._handler()):  # type: ignore[misc]
            def do_POST(self) -> None:  # noqa: N802  as http.server names it
                issuer.issue(self)

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """The discovery document."""
        self._send(request, 200, {"issuer": self.url, "token_endpoint": self.url + "/token"})

    def issue(self, request: BaseHTTPRequestHandler) -> None:
        text = request.rfile.read(int(request.headers["Content-Length"])).decode()
        self.forms.append({name: values[0] for name, values in parse_qs(text).items()})
        self._send(request, self.status, self.tokens)

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: dict[str, object]) -> None:
        content = json.dumps(body).encode()
        request.send_response(status)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


@pytest.fixture
def issuer() -> Iterator[TokenIssuer]:
    with TokenIssuer() as running:
        yield running


def provider(issuer: TokenIssuer) -> OpenIdProvider:
    settings = ProviderSettings(name="company", issuer=issuer.url, client_id="portal", client_secret="client-secret")
    return OpenIdProvider(settings, SystemClock())


def test_refresh_token_of_a_code_is_exchanged(issuer: TokenIssuer) -> None:
    """RFC 6749, 6: the client authenticates; a new refresh token is optional."""
    at = provider(issuer)
    issuer.tokens = {"access_token": "a", "id_token": "i", "refresh_token": "r"}
    first = asyncio.run(at.redeem("code", "verifier", "https://portal/callback"))
    issuer.tokens = {"access_token": "b"}
    second = asyncio.run(at.refresh(first.refresh_token))

    assert (first.access_token, first.id_token, first.refresh_token) == ("a", "i", "r")
    assert (second.access_token, second.refresh_token) == ("b", "")
    assert issuer.forms[1] == {
        "grant_type": "refresh_token", "refresh_token": "r", "client_id": "portal", "client_secret": "client-secret",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("status", "tokens"),
    [
        (400, {"error": "invalid_grant", "error_description": "secret-refresh-token is unknown"}),
        (200, {}),
        (200, {"access_token": ""}),
        (200, {"access_token": 7}),
        (200, {"access_token": "x" * 20_000}),
    ],
)
def test_answer_without_an_access_token_is_a_failure(
    issuer: TokenIssuer, status: int, tokens: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the error nor the log has the refresh token or the secret."""
    issuer.status, issuer.tokens = status, tokens

    with pytest.raises(SignInFailed) as failure:
        asyncio.run(provider(issuer).refresh("secret-refresh-token"))

    written = failure.value.text() + caplog.text
    assert "secret-refresh-token" not in written
    assert "client-secret" not in written
