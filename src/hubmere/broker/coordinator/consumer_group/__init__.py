"""Consumer groups whose partitions the coordinator assigns (KIP-848, `group.protocol=consumer`).

`group` decides who is a member and which epoch the group is in, `reconciliation` moves one member towards its target,
`assignors` compute targets, `regex` evaluates subscriptions by pattern, `classic` serves members that still use the
classic protocol, and `migration` turns a classic group into a consumer group and back.
"""
