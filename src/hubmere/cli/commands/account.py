"""`hubmere account get-access-token`: a token of the node's own issuer, as `az` prints one for `AzureCliCredential`.

The identity libraries run `az account get-access-token --output json --resource ...`; where `az` stands for this
command, they get tokens of the test application that the ready file names.
"""

import json
import time
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import typer

from hubmere.cli.arm.client import DEFAULT_SUBSCRIPTION, Json
from hubmere.cli.arm.verbs import NODE_OPTIONS, AzCommand, a_group, option, take_node, with_signature
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.output.results import Output, render
from hubmere.cli.target.http import TIMEOUT_S
from hubmere.client.http import HttpClient, HttpUnreachable

_DEFAULT_RESOURCE = "https://eventhubs.azure.net"
_OK = 200
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def _get_access_token(given: dict[str, Any]) -> None:
    output, query = given.pop("output"), given.pop("query")
    resource, scopes, tenant, subscription = (
        given.pop(name) for name in ("resource", "scope", "tenant", "subscription")
    )
    if resource and scopes:
        raise CommandFailed(Exit.USAGE, "give either --resource or --scope")
    target = take_node(given)
    identity = (target.ready or {}).get("identity")
    if identity is None:
        hint = "start it with --local-identity, and run this command on its machine"
        raise CommandFailed(Exit.FAILED, "the node has no issuer of its own", hint)
    own_tenant = identity["env"]["AZURE_TENANT_ID"]
    if tenant and tenant != own_tenant:
        raise CommandFailed(Exit.USAGE, f"the issuer has no tenant '{tenant}'; expected {own_tenant}")
    scope = " ".join(scopes) if scopes else f"{resource or _DEFAULT_RESOURCE}/.default"
    answer = _request_token(identity, scope, (target.ready or {}).get("ca_file"))
    if text := render(_as_az(answer, own_tenant, subscription), output or Output.JSON, (), query):
        typer.echo(text)


def _request_token(identity: Mapping[str, Any], scope: str, ca_file: str | None) -> Json:
    """A token of the application in the ready file (RFC 6749, 4.4)."""
    variables, endpoint = identity["env"], urlsplit(identity["token_endpoint"])
    form = urlencode(
        {
            "grant_type": "client_credentials",
            "client_id": variables["AZURE_CLIENT_ID"],
            "client_secret": variables["AZURE_CLIENT_SECRET"],
            "scope": scope,
        }
    )
    with closing(HttpClient(f"https://{endpoint.netloc}", ca_file=ca_file, timeout_s=TIMEOUT_S)) as client:
        try:
            answer = client.request("POST", endpoint.path, form.encode(), _FORM)
        except HttpUnreachable as problem:
            raise CommandFailed(Exit.FAILED, str(problem)) from None
    body: Json = json.loads(answer.body)
    if answer.status != _OK:
        raise CommandFailed(Exit.FAILED, f"the issuer refused: {body.get('error_description', answer.status)}")
    return body


def _as_az(answer: Json, tenant: str, subscription: str) -> Json:
    """The object that `az` prints; `expiresOn` is local time, as there."""
    expires_at_s = int(time.time()) + int(answer["expires_in"])
    return {
        "accessToken": answer["access_token"],
        "expiresOn": datetime.fromtimestamp(expires_at_s).astimezone().strftime("%Y-%m-%d %H:%M:%S.%f"),
        "expires_on": expires_at_s,
        "subscription": subscription,
        "tenant": tenant,
        "tokenType": "Bearer",
    }


app = a_group("Tokens of the node's own issuer.")


@app.callback()
def account() -> None:
    """Tokens of the node's own issuer."""
    # Typer would make `account` itself the command if `get-access-token` were all there is.


_HELP = """Print a token of the node's own issuer, in the format of `az account get-access-token`.

The node runs with `--local-identity` on this machine. The token is that of the test application with Data Owner.
"""
_OPTIONS = (
    option(
        "resource", str | None, "--resource", metavar="URL", help=f"What it is for. Default: {_DEFAULT_RESOURCE}."
    ),
    option("scope", list[str] | None, "--scope", metavar="URL", help="What it is for, as scopes."),
    option("tenant", str | None, "--tenant", "-t", metavar="NAME", help="The tenant; the issuer has one, adfs."),
    option(
        "subscription", str, "--subscription", "-s", default=DEFAULT_SUBSCRIPTION, metavar="ID",
        help="Subscription that is shown.",
    ),
    option(
        "output", Output | None, "--output", "-o", case_sensitive=False, metavar="|".join(Output),
        help="How the result is shown. Default: json.",
    ),
    option("query", str | None, "--query", metavar="JMESPATH", help="Show a part of the result: a JMESPath query."),
    *NODE_OPTIONS,
)  # fmt: skip
app.command("get-access-token", help=_HELP, cls=AzCommand)(with_signature(_get_access_token, _OPTIONS))
