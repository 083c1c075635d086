"""The Kafka protocol without I/O: messages, record batches, and an engine for each end of a connection.

Other packages use `connection` (the engines), `messages.*` (requests and responses), `records` (batches) and `errors`.
The rest (`schema`, `codegen`, `framing`, `primitives`, the sources) supports those. Nothing is imported here, so that
code that only reads batches does not import the messages.
"""
