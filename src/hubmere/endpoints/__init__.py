"""The network side of a node: sockets, TLS, timers, and one package per protocol."""
