"""The sign-in page: plain HTML without scripts, and the parser of its form.

It is the only page that is served without a login, so it works before the page library is loaded, never echoes the
credential, and reads a bounded form.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from html import escape
from typing import Any
from urllib.parse import parse_qs

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

FIELD = "credential"
NEXT_FIELD = "next"
# A connection string has at most 8,192 characters; form encoding takes up to three bytes for each.
MAX_FORM_BYTES = 32 * 1024

_STYLE = """
:root { color-scheme: light dark; --ink: #17262b; --soft: #5b6b70; --ground: #f3f6f6; --card: #fff; --line: #d5dedf;
  --accent: #0b7a75; --error: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eeee; --soft: #9db0b3; --ground: #0f1719; --card: #172225;
  --line: #2b3a3e; --accent: #4fc3b8; --error: #ffb4ab; } }
* { box-sizing: border-box; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
main { width: min(32rem, calc(100vw - 2rem)); background: var(--card); border: 1px solid var(--line);
  border-radius: 12px; padding: 2rem; }
h1 { margin: 0 0 .25rem; font-size: 1.4rem; }
p { margin: 0 0 1.25rem; color: var(--soft); }
label { display: block; font-weight: 600; margin-bottom: .35rem; }
input { width: 100%; font: inherit; padding: .6rem .7rem; border: 1px solid var(--line); border-radius: 8px;
  background: var(--ground); color: var(--ink); }
button { margin-top: 1rem; width: 100%; font: inherit; font-weight: 600; padding: .65rem; border: 0;
  border-radius: 8px; background: var(--accent); color: var(--card); cursor: pointer; }
input:focus-visible, button:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.or { margin: 1rem 0 0; text-align: center; }
.provider { display: block; margin-top: .75rem; text-align: center; font-weight: 600; padding: .6rem;
  color: var(--accent); border: 1px solid var(--accent); border-radius: 8px; text-decoration: none; }
a.provider:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.error { color: var(--error); margin: 1rem 0 0; }
.notice { border-left: 4px solid var(--accent); padding: .25rem .75rem; color: var(--ink); }
"""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Hubmere: sign in</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>{style}</style></head>
<body><main><h1>Hubmere</h1>
<p>Sign in with a connection string or with the administrator token. The rights of the connection string decide what
you can see and do.</p>{notice}
<form method="post" action="{action}"><input type="hidden" name="next" value="{next}">
<label for="credential">Connection string or token</label>
<input id="credential" name="credential" type="password" autocomplete="current-password" required autofocus
  spellcheck="false">
<button type="submit">Sign in</button>{alert}</form>{providers}</main></body></html>
"""


def render(
    action: str,
    error: str | None = None,
    *,
    notice: str = "",
    next_page: str = "",
    providers: Sequence[tuple[str, str]] = (),
) -> bytes:
    """The sign-in page as HTML, with the error of the previous attempt.

    `notice` is the reason why the person was signed out, `next_page` is the page that opens after the sign-in.
    `providers` are names of identity providers, and the addresses at which a sign-in there begins.
    """
    return _PAGE.format(
        style=_STYLE,
        action=escape(action),
        alert="" if error is None else f'<p class="error" role="alert">{escape(error)}</p>',
        notice=f'<p class="notice" role="status">{escape(notice)}</p>' if notice else "",
        next=escape(next_page),
        providers=_links(providers),
    ).encode()


def _links(providers: Sequence[tuple[str, str]]) -> str:
    links = "".join(
        f'<a class="provider" href="{escape(url)}">Sign in with {escape(name)}</a>' for name, url in providers
    )
    return f'<p class="or">or</p>{links}' if links else ""


async def read_form(receive: Receive) -> tuple[str, str] | None:
    """The credential and the next page in a posted form; None if it is too large or the browser has disconnected."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body += message.get("body", b"")
        if len(body) > MAX_FORM_BYTES:
            return None
        if not message.get("more_body"):
            break
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=4)
    return fields.get(FIELD, [""])[0], fields.get(NEXT_FIELD, [""])[0]
