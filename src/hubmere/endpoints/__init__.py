"""The only network: sockets, TLS, timers, and the dialect of each protocol."""
