"""How much a client may send and read: throughput units, auto-inflate, application groups, commit rates."""
