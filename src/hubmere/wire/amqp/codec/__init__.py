"""The AMQP 1.0 type system and its composites: values, described types, performatives, messages, frames."""
