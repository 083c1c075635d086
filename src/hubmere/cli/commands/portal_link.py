"""`hubmere portal`: prints a one-time link that signs the administrator in to the portal."""

import sys
import webbrowser
from contextlib import closing
from typing import Any

import typer

from hubmere.cli.arm.verbs import NODE_OPTIONS, AzCommand, a_group, option, take_node, with_signature
from hubmere.cli.exit_codes import CommandFailed, Exit
from hubmere.cli.target.http import NodeHttp, Refused

_LINK_PATH = "/portal/sign-in-link"
_UNAUTHORIZED = 401
_NO_PORTAL = (404, 405)


def _portal(given: dict[str, Any]) -> None:
    target = take_node(given)
    with closing(NodeHttp(target)) as http:
        try:
            path = http.request("POST", _LINK_PATH, b"").body.decode()
        except Refused as refused:
            if refused.status == _UNAUTHORIZED:
                hint = "give it by --token, or run the command on the node's own machine"
                raise CommandFailed(Exit.FAILED, "a sign-in link needs the administrator's token", hint) from None
            if refused.status in _NO_PORTAL:
                raise CommandFailed(Exit.FAILED, f"the node at {target.url} serves no portal") from None
            raise
    # The link is for a browser, which may be on another machine than the node.
    told = None if target.ready is None else target.ready["http"] or target.ready["https"]
    link = f"{told or target.url}{path}"
    typer.echo(link)
    if given["open_"] and not webbrowser.open(link):
        raise CommandFailed(Exit.FAILED, "no browser could be opened; open the link yourself")
    if sys.stdout.isatty():
        typer.echo("The link signs you in once. Earlier links that were not used are no longer valid.", err=True)


app = a_group("The portal.")
_HELP = """Print a new link that opens the portal and signs the administrator in.

The link works once. The link that the node printed at its start becomes invalid.
"""
_OPTIONS = (option("open_", bool, "--open", default=False, help="Also open the link in the browser."), *NODE_OPTIONS)
app.command("portal", help=_HELP, cls=AzCommand)(with_signature(_portal, _OPTIONS))
