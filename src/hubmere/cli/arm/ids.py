"""`--ids` of `az`: one resource id instead of the names in it. Scripts pass the `id` that another command printed.

The id is replaced by the options that name the same resource, before the options are parsed. Several ids at once, which
`az` accepts, are refused.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from hubmere.cli.exit_codes import CommandFailed, Exit

IDS = "--ids"
_SCOPE = {"subscriptions": "--subscription", "resourcegroups": "--resource-group"}
_PROVIDER = "providers"


def expand_ids(args: Sequence[str], flags: Mapping[str, str]) -> list[str]:
    """The arguments with names instead of `--ids`; `flags` has the option for each kind of resource, from the top."""
    split = [part for arg in args for part in (arg.split("=", 1) if arg.startswith(f"{IDS}=") else [arg])]
    if IDS not in split or not flags:
        return list(args)
    start = split.index(IDS) + 1
    end = next((at for at in range(start, len(split)) if split[at].startswith("-")), len(split))
    given = split[start:end]
    if len(given) != 1 or IDS in split[end:]:
        raise CommandFailed(Exit.USAGE, f"{IDS} takes one resource id; run the command once for each resource")
    return [*split[: start - 1], *split[end:], *_names(given[0], flags)]


def _names(resource_id: str, flags: Mapping[str, str]) -> list[str]:
    """The options that name the resource of an id."""
    parts = resource_id.strip("/").split("/")
    kinds, names = [kind.lower() for kind in parts[::2]], [unquote(name) for name in parts[1::2]]
    options = {kind.lower(): flag for kind, flag in flags.items()}
    if kinds != [*_SCOPE, _PROVIDER, *options] or len(names) != len(kinds) or not all(names):
        form = "".join(f"/{kind}/..." for kind in ("subscriptions", "resourceGroups", _PROVIDER, *flags))
        raise CommandFailed(Exit.USAGE, f"{IDS} {resource_id} is not an id of the form {form}")
    known = _SCOPE | options
    return [word for kind, name in zip(kinds, names, strict=True) if kind in known for word in (known[kind], name)]
