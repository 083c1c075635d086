"""The AMQP 1.0 type system and what is made of it: values, described types, performatives, messages, frames."""
