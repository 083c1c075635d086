"""Capture targets of the settings, and how a hub's destination is resolved to one of them.

A destination has the form of the service (a storage account by resource id or name, and a container) or is a URL.
Either way the files are written at or below a location that the operator has configured: a target of the settings, or
the node's own folder. So a user with Manage rights on a hub cannot write elsewhere, and credentials stay in the
settings. A container is never a folder of another one: a destination that names a container gets that container, or is
refused with the setting that allows it. Pure values; opens nothing. Reference: service 6.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

from hubmere.model.entity import CaptureDestination
from hubmere.model.errors import InvalidArgument
from hubmere.model.names import CONTAINER_RULE, fold

# URL schemes of targets: a folder, Azure Blob Storage or ADLS Gen2, an S3 bucket.
SCHEMES = ("file", "az", "s3")
# The target of a hub that names none.
DEFAULT_TARGET = "default"
# Paths of the node's HTTP port for the capture job: what to capture, and how far it has come.
PLAN_PATH = "/$capture/plan"
PROGRESS_PATH = "/$capture/progress"
_WHAT = "capture destination"
_NO_FOLDER = "a capture target, or on a cluster capture_folder: a folder that all gateways share"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePlace:
    """A location for files: a URL and its credentials. `options` may hold secrets and are not part of `repr`.

    A place with `is_own_storage` is in the node's own storage account: the node adds its address and key to the plan.
    """

    url: str
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False, hash=False)
    is_own_storage: bool = False

    @property
    def container(self) -> tuple[str, str]:
        """The storage account and the container of an `az` URL."""
        parts = urlsplit(self.url)
        return parts.netloc, parts.path.strip("/").partition("/")[0]

    def below(self, path: str) -> "CapturePlace":
        """A location below this one."""
        return replace(self, url=_join(self.url, path))

    def has(self, url: str) -> bool:
        """Whether a URL is this location or below it."""
        return url == self.url or url.startswith(self.url.rstrip("/") + "/")


def is_path_inside(path: str) -> bool:
    """Whether a path stays below what it is joined to: no dot segments, no other root, no backslashes or controls."""
    if "\\" in path or path.startswith("/") or any(character < " " for character in path):
        return False
    return not any(part in (".", "..") for part in path.split("/"))


def normalize_url(text: str) -> str:
    """The canonical URL of a location; a plain absolute path becomes a file URL. Raises InvalidArgument."""
    url = Path(text).as_uri() if text.startswith("/") else text.rstrip("/")
    if not _is_location(url):
        raise InvalidArgument(
            _WHAT, _without_secrets(text), "file:///folder, az://account/container or s3://bucket/prefix"
        )
    return url


def _is_location(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        # A bracket without an IPv6 address.
        return False
    is_whole = bool(parts.path.strip("/")) if parts.scheme == "file" else bool(parts.netloc)
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    return parts.scheme in SCHEMES and is_whole and is_plain and is_path_inside(unquote(parts.path)[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureTargets:
    """The locations that captured files may be written to: `folder` on this machine, and the targets by name.

    `own_accounts` are the storage accounts of the node itself. With `has_account_folders`, any other account that is
    not a target becomes a folder of that name below `folder`.
    A gateway of a cluster has no folder unless the settings name one that all gateways share: `folder` is None then.
    `missing` names what a cluster lacks to capture at all.
    """

    folder: CapturePlace | None
    named: Mapping[str, CapturePlace] = field(default_factory=lambda: MappingProxyType({}))
    has_account_folders: bool = False
    own_accounts: tuple[CapturePlace, ...] = ()
    missing: str = ""

    @classmethod
    def in_folder(
        cls,
        folder: Path | None,
        named: Mapping[str, CapturePlace] | None = None,
        *,
        has_account_folders: bool = False,
        own_accounts: Iterable[str] = (),
        missing: str = "",
    ) -> "CaptureTargets":
        """Targets beside a local folder."""
        targets = {fold(name): place for name, place in (named or {}).items()}
        return cls(
            folder=None if folder is None else CapturePlace(url=folder.absolute().as_uri()),
            named=MappingProxyType(targets),
            has_account_folders=has_account_folders,
            own_accounts=tuple(CapturePlace(url=f"az://{name}", is_own_storage=True) for name in own_accounts),
            missing=missing,
        )

    def place_of(self, destination: CaptureDestination) -> CapturePlace:
        """The location for the files of a hub; InvalidArgument lists the configured ones."""
        account = destination.storage_account or destination.data_lake_account
        if self.missing:
            raise InvalidArgument(_WHAT, _without_secrets(account), self.missing)
        inside = (destination.container or destination.data_lake_folder).strip("/")
        if not _is_plain(inside):
            raise InvalidArgument("capture container", inside, "a name, or a path without dot segments")
        bases = [self._by_url(account)] if "://" in account else self._by_name(account)
        for base in bases:
            place = _in_container(base, inside)
            if place is not None:
                if place.is_own_storage:
                    CONTAINER_RULE.check(place.container[1])
                return place
        if not inside:
            raise InvalidArgument("capture container", inside, "a container: the target names an account only")
        container, scheme = inside.partition("/")[0], urlsplit(bases[0].url).scheme
        wanted = f"az://{urlsplit(bases[0].url).netloc}/{container}" if scheme == "az" else f"s3://{container}"
        there = ", ".join(base.url for base in bases)
        raise InvalidArgument("capture container", inside, f"a container of {there}; {_setting(container, wanted)}")

    def _by_url(self, text: str) -> CapturePlace:
        url = normalize_url(text)
        known: list[CapturePlace] = [
            *(() if self.folder is None else (self.folder,)),
            *self.named.values(),
            *self.own_accounts,
        ]
        fitting = [place for place in known if place.has(url)]
        if not fitting:
            allowed = ", ".join(place.url for place in known) or _NO_FOLDER
            raise InvalidArgument(_WHAT, _without_secrets(text), f"a URL at or below one of {allowed}")
        nearest = max(fitting, key=lambda place: len(place.url))
        return replace(nearest, url=url)

    def _shared_folder(self, account: str) -> CapturePlace:
        if self.folder is None:
            raise InvalidArgument(_WHAT, account, _NO_FOLDER)
        return self.folder

    def _by_name(self, account: str) -> list[CapturePlace]:
        """The target of a name, or the targets of the storage account of that name (the end of a resource id)."""
        name = PurePosixPath(account).name
        found = self.named.get(fold(name) or DEFAULT_TARGET)
        if found is not None:
            return [found]
        if not name:
            return [self._shared_folder(account)]
        if not _is_plain(name):
            raise InvalidArgument("storage account", account, "a name without dot segments")
        of_account = [place for place in (*self.named.values(), *self.own_accounts) if _is_of_account(place, name)]
        if of_account:
            return of_account
        if self.has_account_folders:
            return [self._shared_folder(account).below(name)]
        known = ", ".join(self.named) or "there are none"
        folders = "capture_account_folders = true makes accounts folders of capture_folder"
        raise InvalidArgument(
            "storage account",
            account,
            f"a capture target ({known}); {_setting(name, f'az://{name}')}, {folders}",
        )


def _is_of_account(place: CapturePlace, account: str) -> bool:
    parts = urlsplit(place.url)
    return parts.scheme == "az" and fold(parts.netloc) == fold(account)


def _in_container(base: CapturePlace, inside: str) -> CapturePlace | None:
    """The container, or path in a container, that a destination names within a target; None if it is another container.

    A folder has no containers: there it is a sub-folder.
    """
    parts = urlsplit(base.url)
    if parts.scheme == "file":
        return base.below(inside) if inside else base
    own = parts.netloc if parts.scheme == "s3" else parts.path.strip("/").partition("/")[0]
    if not own:
        return base.below(inside) if inside else None
    container, _, rest = inside.partition("/")
    if container not in ("", own):
        return None
    return base.below(rest) if rest else base


def _setting(name: str, url: str) -> str:
    return f'the setting [capture.targets.{name}] with url = "{url}" allows it'


def _is_plain(path: str) -> bool:
    """Whether a path can be part of a URL without encoding; encoded dots would escape the check for dot segments."""
    return is_path_inside(path) and not any(character in path for character in "%?#")


def _join(url: str, path: str) -> str:
    return f"{url.rstrip('/')}/{path.strip('/')}"


def _without_secrets(text: str) -> str:
    """A URL for error texts, without user info and query, which may hold secrets."""
    return text.split("?")[0].split("@")[-1]
