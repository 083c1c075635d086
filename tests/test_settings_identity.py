"""OAuth issuers in the settings file: `[identity.issuers.NAME]`."""

from pathlib import Path

import pytest

from hubmere.settings import BadSettings, IssuerSetting, load


def settings_of(tmp_path: Path, text: str) -> tuple[IssuerSetting, ...]:
    path = tmp_path / "hubmere.toml"
    path.write_text(text)
    return load({}, {}, path).identity.issuers


def test_issuer_is_read_with_its_defaults(tmp_path: Path) -> None:
    """One line is enough for Entra ID."""
    (issuer,) = settings_of(tmp_path, '[identity.issuers.company]\nissuer = "https://sts.windows.net/t/"\n')

    assert (issuer.name, issuer.issuer, issuer.keys_file) == ("company", "https://sts.windows.net/t/", None)
    assert (issuer.id_claims, issuer.groups_claim, issuer.audiences) == (("oid", "sub"), "groups", ())


def test_every_key_of_an_issuer_is_read(tmp_path: Path) -> None:
    """These are pinned keys, a CA file, other claims and audiences."""
    text = """
        [identity.issuers.plant]
        issuer = "https://idp.internal"
        audiences = ["event-hubs", "orders"]
        keys_file = "/etc/keys.json"
        ca_file = "/etc/ca.pem"
        id_claims = ["client_id"]
        groups_claim = "roles"
    """

    assert settings_of(tmp_path, text) == (
        IssuerSetting(
            name="plant",
            issuer="https://idp.internal",
            audiences=("event-hubs", "orders"),
            keys_file=Path("/etc/keys.json"),
            ca_file=Path("/etc/ca.pem"),
            id_claims=("client_id",),
            groups_claim="roles",
        ),
    )


def test_test_identities_are_read_without_showing_secrets(tmp_path: Path) -> None:
    """Roles are checked, and no text contains a secret."""
    path = tmp_path / "hubmere.toml"
    path.write_text(
        '[identity.applications.meter]\nsecret = "hush"\nroles = ["azure event hubs data sender"]\n'
        '[identity.users.anna]\npassword = "quiet"\ngroups = ["g"]\n'
    )
    tables = load({}, {}, path).identity

    assert tables.applications[0].roles == ("Azure Event Hubs Data Sender",)
    assert tables.users[0].groups == ("g",)
    assert "hush" not in repr(tables)
    assert "quiet" not in repr(tables)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('identity = "x"', "identity"),
        ("[identity.other.x]", "identity"),
        ("[identity.issuers]\nx = 1", "identity.issuers.x"),
        ("[identity.issuers.x]\naudiences = []", "identity.issuers.x"),
        ('[identity.issuers.x]\nissuer = "http://login.example.org"', "identity.issuers.x.issuer"),
        ('[identity.issuers.x]\nissuer = "ftp://login.example.org"', "identity.issuers.x.issuer"),
        ('[identity.issuers.x]\nissuer = "https://u:p@example.org"', "identity.issuers.x.issuer"),
        ('[identity.issuers.x]\nissuer = "https://e.org"\nkeys = "x"', "identity.issuers.x.keys"),
        ('[identity.issuers.x]\nissuer = "https://e.org"\naudiences = 5', "identity.issuers.x.audiences"),
        ('[identity.applications.x]\nclient_id = "y"', "identity.applications.x"),
        ("[identity.applications.x]\nsecret = 5", "identity.applications.x.secret"),
        ('[identity.users.x]\npassword = "p"\nroles = ["King"]', "identity.users.x.roles"),
        ('token_algorithms = ["HS256"]', "token_algorithms"),
        ('token_algorithms = ["none"]', "token_algorithms"),
        (
            '[identity.issuers.a]\nissuer = "https://e.org"\n[identity.issuers.b]\nissuer = "https://e.org"',
            "identity.issuers",
        ),
    ],
)
def test_invalid_issuer_is_reported_by_its_position(tmp_path: Path, text: str, place: str) -> None:
    """With plain HTTP an attacker could make tokens; symmetric algorithms cannot be allowed."""
    with pytest.raises(BadSettings) as bad:
        settings_of(tmp_path, text)

    assert [problem.setting for problem in bad.value.problems] == [place]
