"""Role assignments: what they allow on which scope, and how they are created, changed and deleted."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from broker.builders import NOW_MS, BrokerHarness
from broker.issuers import OWNER_ID, a_trusted_issuer, claims, token
from hubmere.broker.access.authentication import Principal
from hubmere.broker.access.credentials import BearerToken, SharedAccessSignature
from hubmere.broker.access.resources import Resource
from hubmere.broker.access.revocation import Judge
from hubmere.broker.caller import Caller
from hubmere.model.entity import ApplicationGroup, PublicNetworkAccess, Rights, RoleAssignment
from hubmere.model.errors import (
    AddressNotAllowed,
    ApplicationGroupDisabled,
    ClaimMissing,
    Conflict,
    GroupNotFound,
    HubNotFound,
    InvalidArgument,
    LocalAuthDisabled,
    MalformedToken,
    Refusal,
    RoleMissing,
)
from hubmere.model.names import application_group_name, group_name
from hubmere.model.security.roles import (
    CONTRIBUTOR,
    DATA_OWNER,
    DATA_RECEIVER,
    DATA_SENDER,
    OWNER,
    READER,
    ROLES,
    Control,
    Role,
    find_role,
)
from hubmere.model.spec import NamespaceSpec
from hubmere.model.tier import Profile

NOW_S = NOW_MS / 1000
GROUP_ID = "22222222-2222-2222-2222-222222222222"


class RoleHarness(BrokerHarness):
    """A broker that trusts one issuer, with a second hub."""

    def __init__(self) -> None:
        super().__init__(profile=Profile.PREMIUM)
        self.broker.access.identities.trust(a_trusted_issuer())
        self.a_hub("invoices")

    def assign(
        self, role: Role, hub: str | None = None, group: str | None = None, who: str = OWNER_ID
    ) -> RoleAssignment:
        wanted: Any = RoleAssignment(
            namespace="hubmere",  # type: ignore[arg-type]
            hub=hub,  # type: ignore[arg-type]
            group=group,  # type: ignore[arg-type]
            name=f"{len(self.assignments):08}-0000-0000-0000-000000000000",
            role_id=role.id,
            principal_id=who,
        )
        self.do(lambda done: self.manager.assign_role(wanted, self.actor(), done))
        return self.assignments[-1]

    @property
    def assignments(self) -> list[RoleAssignment]:
        return list(self.broker.entities.role_assignments("hubmere"))

    def take_away(self, assignment: RoleAssignment) -> None:
        self.do(lambda done: self.manager.delete_role_assignment(assignment, self.actor(), done))

    def sign_in(self, **changes: Any) -> Caller:
        credential = BearerToken(token(claims(**changes)))
        return self.broker.sign_in("localhost", credential, address="127.0.0.1", now_s=NOW_S)

    def may(self, right: Rights, *path: str, **changes: Any) -> bool:
        resource = Resource.of_hub("hubmere", *path) if path else Resource.of_namespace("hubmere")
        return self.sign_in(**changes).principal.may(right, resource)

    def manage(self, control: Control, hub: str | None = None) -> Caller:
        return self.broker.sign_in_manager("hubmere", BearerToken(token()), NOW_S, hub=hub, control=control)


@pytest.fixture
def harness() -> Iterator[RoleHarness]:
    made = RoleHarness()
    yield made
    made.close()


def test_token_without_a_role_signs_in_and_may_do_nothing(harness: RoleHarness) -> None:
    """As in Azure, the refusal comes with the first use."""
    caller = harness.sign_in()

    with pytest.raises(ClaimMissing):
        caller.open_publisher("orders", NOW_S)
    with pytest.raises(ClaimMissing):
        caller.hub("orders", Rights.LISTEN, NOW_S)
    assert caller.hubs() == []


@pytest.mark.parametrize(
    ("role", "send", "listen", "manage"),
    [
        (DATA_OWNER, True, True, True),
        (DATA_SENDER, True, False, False),
        (DATA_RECEIVER, False, True, False),
        (OWNER, False, False, False),
        (CONTRIBUTOR, False, False, False),
        (READER, False, False, False),
    ],
)
def test_role_gives_the_rights_of_the_data_plane(
    harness: RoleHarness, role: Role, send: bool, listen: bool, manage: bool
) -> None:
    """As in Azure, roles for management give no access to events."""
    harness.assign(role)

    rights = (Rights.SEND, Rights.LISTEN, Rights.MANAGE)
    assert [harness.may(right, "orders") for right in rights] == [send, listen, manage]


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (DATA_OWNER, Control.WRITE),
        (OWNER, Control.ASSIGN_ROLES),
        (CONTRIBUTOR, Control.WRITE),
        (READER, Control.READ),
        (DATA_SENDER, Control.NONE),
    ],
)
def test_role_gives_control_of_the_management_plane(harness: RoleHarness, role: Role, allowed: Control) -> None:
    """Only Owner assigns roles, and Reader only reads."""
    harness.assign(role)

    for control in (Control.READ, Control.WRITE, Control.ASSIGN_ROLES):
        if control <= allowed:
            harness.manage(control)
        else:
            with pytest.raises(RoleMissing):
                harness.manage(control)


def test_role_on_a_hub_is_limited_to_that_hub(harness: RoleHarness) -> None:
    """Other hubs and the namespace cannot be used, and only this hub is visible."""
    harness.assign(DATA_OWNER, "orders")

    assert harness.may(Rights.SEND, "orders")
    assert not harness.may(Rights.SEND, "invoices")
    assert not harness.may(Rights.MANAGE)
    assert [hub.name for hub in harness.sign_in().hubs()] == ["orders"]
    harness.manage(Control.WRITE, "orders")
    with pytest.raises(RoleMissing):
        harness.manage(Control.READ, "invoices")
    with pytest.raises(RoleMissing):
        harness.manage(Control.READ)


def test_role_on_a_consumer_group_is_limited_to_that_group(harness: RoleHarness) -> None:
    """A reader of one group may read the properties of its hub, but no events of other groups."""
    harness.assign(DATA_RECEIVER, "orders", "$Default")
    hub = harness.broker.entities.hub("hubmere", "orders")
    harness.do(
        lambda done: harness.manager.create_group("hubmere", hub.name, group_name("billing"), "", harness.actor(), done)
    )

    assert harness.may(Rights.LISTEN, "orders", "consumergroups", "$default", "partitions", "0")
    assert harness.may(Rights.LISTEN, "orders", "$management")
    assert not harness.may(Rights.LISTEN, "orders", "consumergroups", "billing")
    assert not harness.may(Rights.LISTEN, "orders", "consumergroups", "$default2")
    assert not harness.may(Rights.LISTEN, "orders")


def test_role_of_a_group_of_users_applies_to_its_members(harness: RoleHarness) -> None:
    """The token of a user names the groups of the user."""
    harness.assign(DATA_SENDER, who=GROUP_ID.upper())

    assert harness.may(Rights.SEND, "orders", groups=[GROUP_ID])
    assert not harness.may(Rights.SEND, "orders", groups=["another"])
    assert not harness.may(Rights.SEND, "orders")


def test_role_of_an_application_does_not_apply_to_its_users(harness: RoleHarness) -> None:
    """A user who signs in through an application does not get the roles of the application."""
    harness.assign(DATA_SENDER, who="my-app")

    assert harness.may(Rights.SEND, "orders", oid=None, sub="my-app", azp="my-app")
    assert harness.may(Rights.SEND, "orders", appid="my-app", idtyp="app")
    assert not harness.may(Rights.SEND, "orders", oid="a-user", sub="pairwise", appid="my-app")


def test_rights_follow_changes_of_role_assignments(harness: RoleHarness) -> None:
    """Open connections are reviewed with the current assignments."""
    kept = harness.assign(DATA_SENDER, "orders")
    principal = harness.sign_in().principal
    judge: Judge = harness.broker.revocation.judge

    assert judge(principal, NOW_S) is principal
    harness.take_away(kept)
    judged = judge(principal, NOW_S)

    assert not judged.may(Rights.SEND, Resource.of_hub("hubmere", "orders"))
    assert judged.rights is Rights.NONE


def test_open_connection_is_reviewed_when_a_role_assignment_is_deleted(harness: RoleHarness) -> None:
    """Revocation does not wait for the token to expire."""
    kept, other = harness.assign(DATA_SENDER, "orders"), harness.assign(DATA_SENDER, "invoices")
    caller = harness.sign_in()
    caller.publisher("orders", NOW_S)
    reviewed: list[Refusal | None] = []

    class Connection:
        def review(self, judge: Judge) -> None:
            try:
                caller.review_connection(judge, NOW_S)
                reviewed.append(None)
            except Refusal as refusal:
                reviewed.append(refusal)

    harness.broker.revocation._connections = lambda: [Connection()]
    harness.take_away(kept)
    caller.publisher("invoices", NOW_S)
    harness.take_away(other)

    assert [type(one) for one in reviewed] == [ClaimMissing, ClaimMissing]


def test_roles_of_an_identity_are_cumulative(harness: RoleHarness) -> None:
    """Roles on all scopes count together."""
    harness.assign(DATA_SENDER, "orders")
    harness.assign(DATA_RECEIVER)

    assert harness.may(Rights.SEND, "orders")
    assert harness.may(Rights.LISTEN, "invoices")
    assert not harness.may(Rights.SEND, "invoices")


def test_existing_assignment_can_be_repeated_but_not_changed(harness: RoleHarness) -> None:
    """As in Azure, the same assignment again is accepted, and another one with the same id is refused."""
    made = harness.assign(DATA_SENDER)
    harness.do(lambda done: harness.manager.assign_role(made, harness.actor(), done))

    other_id = replace(made, name="99999999-0000-0000-0000-000000000000")
    other_role = replace(made, role_id=DATA_OWNER.id)
    for wanted in (other_id, other_role):
        with pytest.raises(Conflict):
            harness.manager.assign_role(wanted, harness.actor(), lambda _: None)
    assert len(harness.assignments) == 1


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"hub": "nowhere"}, HubNotFound),
        ({"hub": "orders", "group": "nobody"}, GroupNotFound),
        ({"principal_id": ""}, InvalidArgument),
        ({"principal_id": "x" * 257}, InvalidArgument),
        ({"principal_id": "two words"}, InvalidArgument),
        ({"description": "x" * 1025}, InvalidArgument),
    ],
)
def test_bad_assignment_is_refused(harness: RoleHarness, changes: dict[str, Any], kind: type[Refusal]) -> None:
    """Nothing is stored, and the error names the reason."""
    wanted = replace(harness.assign(DATA_SENDER), name="99999999-0000-0000-0000-000000000000", **changes)

    with pytest.raises(kind):
        harness.manager.assign_role(wanted, harness.actor(), lambda _: None)


def test_assignments_are_deleted_with_their_hub(harness: RoleHarness) -> None:
    """A new hub with the old name has no assignments."""
    harness.assign(DATA_SENDER, "orders")
    harness.assign(DATA_RECEIVER, "invoices", "$Default")
    harness.assign(DATA_OWNER)
    hub = harness.broker.entities.hub("hubmere", "orders")
    invoices = harness.broker.entities.hub("hubmere", "invoices")
    harness.do(
        lambda done: harness.manager.create_group("hubmere", invoices.name, group_name("g"), "", harness.actor(), done)
    )
    harness.assign(DATA_RECEIVER, "invoices", "g")

    harness.do(lambda done: harness.manager.delete_hub("hubmere", hub.name, harness.actor(), done))
    harness.do(lambda done: harness.manager.delete_group("hubmere", "invoices", "g", harness.actor(), done))

    assert {(one.hub, one.group) for one in harness.assignments} == {(None, None), ("invoices", "$Default")}


def test_assignments_are_audited_with_role_and_principal(harness: RoleHarness) -> None:
    """After an incident an operator needs to know who gave which right to whom."""
    harness.take_away(harness.assign(DATA_SENDER, "orders"))

    lines = [(line.action, line.target) for line in harness.broker.audit.latest() if "role" in line.action]

    target = f"hubmere/orders/{DATA_SENDER.name}/{OWNER_ID}"
    assert sorted(lines) == [("assign role", target), ("delete role assignment", target)]


def test_namespace_without_local_authentication_accepts_tokens_only(harness: RoleHarness) -> None:
    """In Azure, `disableLocalAuth` allows only identities."""
    harness.assign(DATA_OWNER)
    spec = NamespaceSpec(disable_local_auth=True)
    harness.do(lambda done: harness.manager.update_namespace("hubmere", spec, harness.actor(), done))

    with pytest.raises(LocalAuthDisabled):
        harness.broker.sign_in("localhost", SharedAccessSignature("x"), address="127.0.0.1", now_s=NOW_S)
    assert harness.may(Rights.SEND, "orders")


def test_disabled_application_group_refuses_its_application(harness: RoleHarness) -> None:
    """As in Azure, `AADAppID=` names an application."""
    harness.assign(DATA_OWNER)
    group = ApplicationGroup(
        namespace=harness.broker.entities.namespace("hubmere").name,
        name=application_group_name("slow"),
        client_id="AADAppID=my-app",
        is_enabled=False,
    )
    harness.do(lambda done: harness.manager.write_application_group(group, harness.actor(), done))

    assert harness.may(Rights.SEND, "orders", appid="another")
    with pytest.raises(ApplicationGroupDisabled):
        harness.sign_in(appid="MY-APP")


def test_connection_cannot_change_its_identity_when_it_authenticates_again(harness: RoleHarness) -> None:
    """KIP-368: a connection keeps its principal."""
    harness.assign(DATA_OWNER)
    caller = harness.sign_in()

    caller.reauthenticate("localhost", BearerToken(token(claims(exp=int(NOW_S) + 7200))), NOW_S)
    with pytest.raises(MalformedToken):
        caller.reauthenticate("localhost", BearerToken(token(claims(oid="somebody-else"))), NOW_S)

    assert caller.principal.expires_at_s == int(NOW_S) + 7200


def test_namespace_is_found_by_the_audience_of_the_token(harness: RoleHarness) -> None:
    """A Kafka client with OAUTHBEARER sends no host name; the audience of its token names the namespace."""
    caller = harness.broker.sign_in(
        None, BearerToken(token(claims(aud="https://hubmere.servicebus.windows.net"))), address="", now_s=NOW_S
    )

    assert caller.namespace.name == "hubmere"


def test_claim_is_limited_to_its_audience(harness: RoleHarness) -> None:
    """A token that is put to `$cbs` for one hub opens only that hub, whatever its roles are."""
    harness.assign(DATA_OWNER)
    caller = harness.broker.connect("localhost", "127.0.0.1")
    principal: Principal = caller.authenticate(BearerToken(token()), NOW_S, audience="sb://localhost/orders")

    assert principal.may(Rights.SEND, Resource.of_hub("hubmere", "orders"))
    assert not principal.may(Rights.SEND, Resource.of_hub("hubmere", "invoices"))


def test_network_rules_are_checked_before_tokens(harness: RoleHarness) -> None:
    """A client with a denied address must not learn anything about its token."""
    spec = NamespaceSpec(public_network_access=PublicNetworkAccess.DISABLED)
    harness.do(lambda done: harness.manager.update_namespace("hubmere", spec, harness.actor(), done))

    with pytest.raises(AddressNotAllowed):
        harness.broker.sign_in("localhost", BearerToken("x.y.z"), address="203.0.113.7", now_s=NOW_S)


@pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
def test_role_is_found_by_id_by_resource_id_and_by_name(role: Role) -> None:
    """Clients write all three forms."""
    forms = (
        role.id.upper(),
        f"/subscriptions/s/providers/Microsoft.Authorization/roleDefinitions/{role.id}",
        role.name.upper(),
    )

    assert [find_role(form) for form in forms] == [role] * 3
