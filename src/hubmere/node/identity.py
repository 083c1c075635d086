"""Composes the identities of a node: the issuers of the settings, their pinned keys, and the fetching of the others."""

import asyncio

from hubmere.broker.identity.identities import Identities
from hubmere.broker.identity.keys import IssuerKeys, MalformedKeys, TrustedKey, read_key_set, read_pem
from hubmere.broker.identity.tokens import TrustedIssuer
from hubmere.endpoints.issuer_keys import KeyFetcher
from hubmere.endpoints.sign_in_provider import ProviderSettings
from hubmere.model.clock import Clock
from hubmere.settings import BadSettings, IssuerSetting, Problem, Settings


def build_identities(settings: Settings) -> Identities:
    """The issuers of the settings; raises BadSettings if a file with keys cannot be used."""
    problems: list[Problem] = []
    issuers = [_trusted_issuer(issuer, problems) for issuer in settings.identity.issuers]
    if problems:
        raise BadSettings(problems)
    return Identities(issuers, algorithms=settings.token_algorithms, skew_s=int(settings.clock_skew_s))


def portal_providers(settings: Settings) -> list[ProviderSettings]:
    """The issuers of the settings at which people may sign in to the portal: those with a client id."""
    return [
        ProviderSettings(
            name=one.name,
            issuer=one.issuer,
            client_id=one.client_id,
            client_secret=one.client_secret,
            scopes=one.scopes,
            ca_file=None if one.ca_file is None else str(one.ca_file),
        )
        for one in settings.identity.issuers
        if one.client_id
    ]


def start_fetching(identities: Identities, settings: Settings, clock: Clock) -> KeyFetcher:
    """Have the keys of issuers without pinned ones fetched when a token needs them."""
    ca_files = {one.issuer: str(one.ca_file) for one in settings.identity.issuers if one.ca_file is not None}
    fetcher = KeyFetcher(clock, ca_files)
    loop = asyncio.get_running_loop()
    for issuer in identities.issuers:
        issuer.keys.fetch = fetcher.fetch
        issuer.keys.defer = loop.call_soon
    return fetcher


def _trusted_issuer(setting: IssuerSetting, problems: list[Problem]) -> TrustedIssuer:
    return TrustedIssuer(
        keys=IssuerKeys(setting.issuer, _pinned_keys(setting, problems)),
        audiences=frozenset(setting.audiences),
        id_claims=setting.id_claims,
        groups_claim=setting.groups_claim,
    )


def _pinned_keys(setting: IssuerSetting, problems: list[Problem]) -> tuple[TrustedKey, ...] | None:
    path = setting.keys_file
    if path is None:
        return None
    try:
        text = path.read_bytes()
        return read_key_set(text) if text.lstrip().startswith(b"{") else read_pem(text)
    except (OSError, MalformedKeys) as error:
        why = error.strerror if isinstance(error, OSError) else error
        allowed = f"a file with a JWK set, a public key or a certificate ({why})"
        place = f"identity.issuers.{setting.name}.keys_file"
        problems.append(Problem(setting=place, origin="the file", value=str(path), allowed=allowed))
        return ()
