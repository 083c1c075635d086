"""The AMQP 1.0 endpoint: connections, their links, and the two service nodes `$cbs` and `$management`."""
