"""The links of an AMQP connection: how they attach, publish, read and detach."""
