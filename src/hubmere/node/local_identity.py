"""Composes the node's own OAuth issuer (`local_identity`): its identities, their roles, its key, and how to use it.

The built-in application `hubmere-owner` has the role Data Owner. Its secret and the secret of managed identities are
derived from the administrator's token, so that they stay the same for one data folder.
"""

import hmac
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import urlsplit

from hubmere.broker.broker import Broker
from hubmere.broker.identity.keys import IssuerKeys, read_key_set
from hubmere.broker.identity.tokens import TrustedIssuer
from hubmere.broker.management.manager import Actor, OnDone
from hubmere.endpoints.http.context import await_change
from hubmere.endpoints.http.identity.app import DEFAULT_AUDIENCE, TENANT, LocalIssuer
from hubmere.endpoints.http.identity.authorize import Authorizations
from hubmere.endpoints.http.identity.directory import Application, Directory, User, derived_id
from hubmere.endpoints.http.identity.signing import Signer, generate_key
from hubmere.endpoints.sign_in_provider import ProviderSettings
from hubmere.model.addresses import Addresses
from hubmere.model.clock import Clock
from hubmere.model.entity import RoleAssignment
from hubmere.model.security.roles import DATA_OWNER, PrincipalType, find_role
from hubmere.node.ready import ReadyIdentity
from hubmere.settings import Settings
from hubmere.store.secrets import NodeSecrets

_OWNER = "hubmere-owner"
# The portal as a client of the issuer, and its name on the sign-in page.
_PORTAL_ID = derived_id("client", "hubmere-portal")
_PROVIDER = "the local issuer"
_CALLBACK = "/portal/sign-in/callback"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Derives the ids of assignments, so that a restart finds its own.
_ASSIGNMENTS = uuid.UUID("0d4f4e0a-7f0e-4d43-8c2a-52c6d1c9a9d7")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalIdentity:
    """The local issuer of a running node, and how programs use it."""

    issuer: LocalIssuer
    ready: ReadyIdentity
    portal: ProviderSettings


def build_directory(settings: Settings, secrets: NodeSecrets) -> Directory:
    """The built-in application and the identities of the settings."""
    declared = [
        Application(
            name=one.name,
            client_id=one.client_id or derived_id("client", one.name),
            object_id=one.object_id or derived_id("application", one.name),
            secret=one.secret or "",
            groups=one.groups,
            roles=one.roles,
        )
        for one in settings.identity.applications
    ]
    owner = Application(
        name=_OWNER,
        client_id=derived_id("client", _OWNER),
        object_id=derived_id("application", _OWNER),
        secret=_derived_secret(secrets, _OWNER),
        roles=(DATA_OWNER.name,),
    )
    users = [
        User(
            name=one.name,
            object_id=one.object_id or derived_id("user", one.name),
            password=one.password or "",
            groups=one.groups,
            roles=one.roles,
        )
        for one in settings.identity.users
    ]
    return Directory((owner, *declared), users)


async def assign_roles(directory: Directory, broker: Broker, namespace: str, actor: Callable[[], Actor]) -> None:
    """Give the identities their roles on the node's own namespace; what exists is left as it is."""
    known = {(one.role_id, one.principal_id) for one in broker.entities.role_assignments(namespace) if not one.hub}
    for wanted in _wanted_assignments(directory, broker, namespace):
        if (wanted.role_id, wanted.principal_id) in known:
            continue

        def assign(on_done: OnDone, wanted: RoleAssignment = wanted) -> None:
            broker.manager.assign_role(wanted, actor(), on_done)

        await await_change(assign)


def _wanted_assignments(directory: Directory, broker: Broker, namespace: str) -> Iterator[RoleAssignment]:
    name = broker.entities.namespace(namespace).name
    holders: list[Application | User] = [*directory.applications, *directory.users]
    for holder in holders:
        kind = PrincipalType.SERVICE_PRINCIPAL if isinstance(holder, Application) else PrincipalType.USER
        for role in map(find_role, holder.roles):
            yield RoleAssignment(
                namespace=name,
                name=str(uuid.uuid5(_ASSIGNMENTS, f"{name}/{role.id}/{holder.object_id}")),
                role_id=role.id,
                principal_id=holder.object_id,
                principal_type=kind,
                description=f"{holder.name} of the settings",
            )


def open_local_identity(
    directory: Directory,
    broker: Broker,
    secrets: NodeSecrets,
    addresses: Addresses,
    clock: Clock,
    host_names: Iterable[str],
) -> LocalIdentity:
    """The issuer at the node's addresses; the node trusts it from now on."""
    authority = f"https://{addresses.host}:{addresses.https}"
    signer = Signer(secrets.identity_key(generate_key), f"{authority}/{TENANT}", clock)
    keys = IssuerKeys(signer.issuer, read_key_set(signer.key_set))
    broker.access.identities.trust(TrustedIssuer(keys=keys))
    header = _derived_secret(secrets, "managed identity")
    known = frozenset((*_LOOPBACK, *host_names))
    authorizations = Authorizations(directory, _PORTAL_ID, lambda url: _is_portal(url, known))
    issuer = LocalIssuer(signer, directory, clock, authorizations, identity_header=header)
    token_file = secrets.write_federated_token(signer.federated_token(directory.owner))
    ready = _ready(directory.owner, signer.issuer, authority, header, addresses, str(token_file.resolve()))
    portal = ProviderSettings(
        name=_PROVIDER,
        issuer=signer.issuer,
        client_id=_PORTAL_ID,
        scopes=("openid", "profile", f"{DEFAULT_AUDIENCE}/.default"),
        ca_file=addresses.ca_file,
    )
    return LocalIdentity(issuer=issuer, ready=ready, portal=portal)


def _is_portal(url: str, hosts: frozenset[str]) -> bool:
    """Whether an address is the portal's, on this node: at any port, because of port mappings."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    is_http = parts.scheme in ("http", "https") and not parts.query and not parts.fragment and "@" not in parts.netloc
    return is_http and (parts.hostname or "") in hosts and parts.path == _CALLBACK


def _ready(
    owner: Application, issuer: str, authority: str, header: str, addresses: Addresses, token_file: str
) -> ReadyIdentity:
    """The environment variables that identity libraries read; those of TLS differ by language."""
    trust = {}
    if addresses.ca_file is not None:
        trust = dict.fromkeys(("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"), addresses.ca_file)
    common = {"AZURE_AUTHORITY_HOST": authority, "AZURE_TENANT_ID": TENANT, "AZURE_CLIENT_ID": owner.client_id}
    plain = f"http://{addresses.host}:{addresses.http}" if addresses.http is not None else authority
    return ReadyIdentity(
        issuer=issuer,
        token_endpoint=f"{issuer}/oauth2/token",
        env=common | {"AZURE_CLIENT_SECRET": owner.secret} | trust,
        managed_identity_env={"IDENTITY_ENDPOINT": f"{plain}/{TENANT}/msi/token", "IDENTITY_HEADER": header},
        workload_identity_env=common | {"AZURE_FEDERATED_TOKEN_FILE": token_file} | trust,
    )


def _derived_secret(secrets: NodeSecrets, what: str) -> str:
    return hmac.new(secrets.admin_token().encode(), f"local identity\n{what}".encode(), sha256).hexdigest()
