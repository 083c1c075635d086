"""The Kafka protocol without I/O: messages, record batches, and an engine for each end of a connection.

For neighbours: `connection` (the engines), `messages.*` (what is asked and answered), `records` and `compression`
(batches), `errors`. The rest (`schema`, `codegen`, `framing`, `primitives`, the sources) serves those. Nothing is
imported here, so that a reader of batches alone does not pay for the messages.
"""
