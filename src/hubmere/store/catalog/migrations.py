"""The catalog's schema, as numbered migrations from an empty file to the current version.

A released migration never changes; a new schema is a new migration at the end. SQLite's `user_version` is the number of
migrations that have run. Each one is a transaction together with its number, so a crash leaves the file before or after
it.
"""

import sqlite3
from collections.abc import Sequence

_ENTITIES = """
CREATE TABLE namespaces (
    key TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE hubs (
    uid TEXT PRIMARY KEY,
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    UNIQUE (namespace, key)
) STRICT;
CREATE TABLE consumer_groups (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (hub_uid, key)
) STRICT;
CREATE TABLE access_rules (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    hub_uid TEXT REFERENCES hubs (uid) ON DELETE CASCADE,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, scope, key)
) STRICT;
CREATE INDEX access_rules_by_hub ON access_rules (hub_uid);
CREATE TABLE revoked_publishers (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (hub_uid, key)
) STRICT;
CREATE TABLE geo_aliases (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE TABLE application_groups (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    key TEXT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE TABLE deletions (
    hub_uid TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    hub TEXT NOT NULL,
    partition_count INTEGER NOT NULL,
    since_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    text TEXT NOT NULL
) STRICT;
"""

_PROGRESS = """
CREATE TABLE group_offsets (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    group_id TEXT NOT NULL,
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    leader_epoch INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    committed_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    PRIMARY KEY (namespace, group_id, hub_uid, partition)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_offsets_by_hub ON group_offsets (hub_uid);
CREATE TABLE group_metadata (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    group_id TEXT NOT NULL,
    state TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, group_id)
) STRICT;
CREATE TABLE transactions (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    transactional_id TEXT NOT NULL,
    state TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (namespace, transactional_id)
) STRICT;
CREATE TABLE checkpoints (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    group_name TEXT NOT NULL,
    partition INTEGER NOT NULL,
    "offset" TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    etag TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    client_id TEXT NOT NULL,
    PRIMARY KEY (hub_uid, group_name, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE ownerships (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    group_name TEXT NOT NULL,
    partition INTEGER NOT NULL,
    owner TEXT NOT NULL,
    owner_level INTEGER NOT NULL,
    etag TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (hub_uid, group_name, partition)
) STRICT, WITHOUT ROWID;
CREATE TABLE capture_states (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    state TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (hub_uid, partition)
) STRICT;
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    next_value INTEGER NOT NULL
) STRICT;
"""

_AUDIT = """
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    resource TEXT NOT NULL
) STRICT;
"""

# Nothing was ever written to the first version of this table: there was no capture job yet.
_CAPTURE_PROGRESS = """
DROP TABLE capture_states;
CREATE TABLE capture_states (
    hub_uid TEXT NOT NULL REFERENCES hubs (uid) ON DELETE CASCADE,
    partition INTEGER NOT NULL,
    capture_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    files INTEGER NOT NULL,
    events INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    last_file TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    PRIMARY KEY (hub_uid, partition)
) STRICT, WITHOUT ROWID;
"""

_REVISION = """
CREATE TABLE revision (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    number INTEGER NOT NULL,
    checksum TEXT NOT NULL
) STRICT;
"""

# The audit log is a file of its own (`audit.log`); nothing read this table.
_DROP_AUDIT = """
DROP TABLE audit;
"""

_BLOBS = """
CREATE TABLE containers (
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    etag TEXT NOT NULL,
    modified_ms INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    lease_seconds INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    is_lease_broken INTEGER NOT NULL,
    PRIMARY KEY (account, name)
) STRICT;
CREATE TABLE blobs (
    account TEXT NOT NULL,
    container TEXT NOT NULL,
    name TEXT NOT NULL,
    etag TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    modified_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL,
    content_type TEXT NOT NULL,
    content_encoding TEXT NOT NULL,
    content_language TEXT NOT NULL,
    content_disposition TEXT NOT NULL,
    cache_control TEXT NOT NULL,
    content_md5 TEXT NOT NULL,
    metadata TEXT NOT NULL,
    body TEXT NOT NULL,
    parts TEXT NOT NULL,
    blocks TEXT NOT NULL,
    lease_id TEXT NOT NULL,
    lease_seconds INTEGER NOT NULL,
    lease_until_ms INTEGER NOT NULL,
    is_lease_broken INTEGER NOT NULL,
    PRIMARY KEY (account, container, name)
) STRICT;
CREATE TABLE blocks (
    account TEXT NOT NULL,
    container TEXT NOT NULL,
    blob TEXT NOT NULL,
    block_id TEXT NOT NULL,
    file TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    staged_ms INTEGER NOT NULL,
    PRIMARY KEY (account, container, blob, block_id)
) STRICT;
"""

_ROLE_ASSIGNMENTS = """
CREATE TABLE role_assignments (
    namespace TEXT NOT NULL REFERENCES namespaces (key) ON DELETE CASCADE,
    key TEXT NOT NULL,
    hub_uid TEXT REFERENCES hubs (uid) ON DELETE CASCADE,
    body TEXT NOT NULL,
    PRIMARY KEY (namespace, key)
) STRICT;
CREATE INDEX role_assignments_by_hub ON role_assignments (hub_uid);
"""

# Event processors store checkpoints and ownership as blobs; nothing ever wrote these tables.
_DROP_CHECKPOINTS = """
DROP TABLE checkpoints;
DROP TABLE ownerships;
"""

MIGRATIONS: tuple[str, ...] = (
    _ENTITIES,
    _PROGRESS,
    _AUDIT,
    _CAPTURE_PROGRESS,
    _REVISION,
    _DROP_AUDIT,
    _BLOBS,
    _ROLE_ASSIGNMENTS,
    _DROP_CHECKPOINTS,
)


class CatalogUnusable(Exception):
    """This version cannot use the catalog file; the operator must act, so the node does not start."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, why)
        self.path = path
        self.why = why

    def __str__(self) -> str:
        """The file and its problem."""
        return f"The catalog '{self.path}' cannot be used: {self.why}."


def schema_version(connection: sqlite3.Connection) -> int:
    """How many migrations have run on the file."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, path: str, migrations: Sequence[str] = MIGRATIONS) -> None:
    """Run the missing migrations; a file of a newer version is refused and not changed."""
    version = schema_version(connection)
    if version > len(migrations):
        raise CatalogUnusable(path, f"its schema has version {version}; this program supports up to {len(migrations)}")
    for number in range(version, len(migrations)):
        _run_migration(connection, migrations[number], number + 1)


def _run_migration(connection: sqlite3.Connection, script: str, number: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in script.split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {number:d}")
    except sqlite3.Error:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
