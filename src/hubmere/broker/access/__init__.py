"""Who a client is and what it may do: credentials, tokens and keys, rights, network rules, and their revocation."""
