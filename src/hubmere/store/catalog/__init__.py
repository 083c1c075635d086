"""The catalog in SQLite: entities, offsets and transactions, with its checks, its mirror and its migrations."""
