"""kafka-python and aiokafka; the deprecation warnings of their imports are suppressed."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka import TopicPartition as AioPlace
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
    from kafka import TopicPartition as Place
    from kafka.admin import NewTopic
    from kafka.errors import KafkaError

__all__ = [
    "AIOKafkaConsumer",
    "AIOKafkaProducer",
    "AioPlace",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "Place",
    "NewTopic",
    "KafkaError",
]
