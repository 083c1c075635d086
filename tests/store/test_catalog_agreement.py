"""Memory and disk agree: after any changes, the tables of a catalog contain exactly what its view shows."""

from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from hubmere.model.entity import GeoAlias, Hub, Namespace, RevokedPublisher
from hubmere.model.errors import AlreadyExists, NotFound
from hubmere.model.names import alias_name, group_name, publisher_name
from hubmere.model.spec import new_group
from hubmere.store.catalog.rows import TABLES, Item
from hubmere.store.catalog.runtime_state import CaptureState, GroupMetadata, TransactionState
from hubmere.store.catalog.sqlite import SqliteCatalog
from hubmere.store.catalog.view import Create, Delete, Drop, Put, Step
from model.builders import NOW_MS, a_hub_and_group, a_namespace, a_rule, limits
from store.catalog_builders import a_catalog, an_offset

Act = Callable[[SqliteCatalog, Namespace, Hub], list[Step]]


def creation(hub: Hub, namespace: Namespace) -> list[Step]:
    """A new hub with the name of another."""
    fresh, group = a_hub_and_group(hub.name, namespace=namespace)
    return [Create(fresh), Create(group)]


# Changes of a hub of a namespace; the hub is the existing one, or one that was never created.
ACTS: dict[str, Act] = {
    "create namespace": lambda catalog, namespace, hub: [Create(namespace), Create(a_rule(namespace, "root"))],
    "create hub": lambda catalog, namespace, hub: creation(hub, namespace),
    "create group": lambda catalog, namespace, hub: [
        Create(new_group(hub, group_name("Cg"), limits(), existing=(), now_ms=NOW_MS))
    ],
    "create rules": lambda catalog, namespace, hub: [Create(a_rule(hub, "r")), Create(a_rule(namespace, "r"))],
    "revoke": lambda catalog, namespace, hub: [Create(RevokedPublisher(hub_uid=hub.uid, name=publisher_name("p")))],
    "pair": lambda catalog, namespace, hub: [Create(GeoAlias(namespace=namespace.name, name=alias_name("a")))],
    "commit": lambda catalog, namespace, hub: [Put(an_offset(hub)), Put(an_offset(hub, group_id="h", partition=1))],
    "capture": lambda catalog, namespace, hub: [
        Put(CaptureState(hub_uid=hub.uid, partition=0, capture_id="one", sequence=7))
    ],
    "remember": lambda catalog, namespace, hub: [
        Put(GroupMetadata(namespace=namespace.key[0], group_id="g", state="{}")),
        Put(TransactionState(namespace=namespace.key[0], transactional_id="t", state="{}")),
    ],
    "forget offset": lambda catalog, namespace, hub: [Drop(an_offset(hub))],
    "delete group": lambda catalog, namespace, hub: [
        Delete(new_group(hub, group_name("cg"), limits(), existing=(), now_ms=NOW_MS))
    ],
    "delete rule": lambda catalog, namespace, hub: [Delete(a_rule(hub, "r"))],
    "delete hub": lambda catalog, namespace, hub: [Delete(hub)],
    "delete namespace": lambda catalog, namespace, hub: [Delete(namespace)],
    "replace hub": lambda catalog, namespace, hub: [
        Delete(hub), *creation(hub, namespace),
    ],
    "finish deletions": lambda catalog, namespace, hub: [*map(Drop, catalog.planned_view.deletions())],
}  # fmt: skip

NAMESPACES = ["first1", "Second"]
HUBS = ["a", "B"]
# An initial state with every kind of item, so that each deletion removes children.
FULL = [
    (act, namespace, hub)
    for namespace in NAMESPACES
    for hub in HUBS
    for act in ACTS
    if not act.startswith(("delete", "replace", "finish", "forget"))
]


@settings(max_examples=60, deadline=None)
@given(
    acts=st.lists(
        st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from(NAMESPACES), st.sampled_from(HUBS)), max_size=40
    ),
    together=st.booleans(),
)
def test_tables_contain_what_the_view_shows(acts: list[tuple[str, str, str]], together: bool) -> None:
    """Deletions cascade twice, by foreign keys and in memory: the results must be equal."""
    catalog = a_catalog()

    for act, namespace_name, hub_name in [*FULL, *acts]:
        namespace = catalog.planned_view.find_namespace(namespace_name) or a_namespace(namespace_name)
        hub = (
            catalog.planned_view.find_hub(namespace_name, hub_name) or a_hub_and_group(hub_name, namespace=namespace)[0]
        )
        with suppress(NotFound, AlreadyExists):
            steps = ACTS[act](catalog, namespace, hub)
            catalog.submit(*steps) if together else catalog.apply(*steps)
    catalog.apply()

    assert set(catalog.view.items()) == set(catalog.planned_view.items()) == set(stored(catalog))
    catalog.close()


def stored(catalog: SqliteCatalog) -> list[Item]:
    """Every row of every table, read over the catalog's own connection while its writer is idle."""
    tables = TABLES.values()
    return [table.from_row(row) for table in tables for row in catalog._connection.execute(table.load_sql)]
