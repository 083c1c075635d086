//! Producers, idempotent and transactional ones among them.

use std::sync::Mutex;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::clients::{number, settings, text, Context, Failure, Outcome, PATIENCE};

/// Notes what became of each record, by its place in the request.
struct Deliveries(Mutex<Vec<(usize, Result<i64, KafkaError>)>>);

impl ClientContext for Deliveries {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        Context.error(error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, index: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        self.0.lock().unwrap().push((*index, outcome));
    }
}

fn a_producer(config: &mut ClientConfig) -> Result<BaseProducer<Deliveries>, Failure> {
    // The node's limit shall judge, not the client's own.
    config.set("message.max.bytes", "5000000").set("linger.ms", "5");
    Ok(BaseProducer::from_config_and_context(config, Deliveries(Mutex::new(Vec::new())))?)
}

/// Send records and wait for all of them: their offsets, or the first error.
fn send(producer: &BaseProducer<Deliveries>, topic: &str, records: &[Value]) -> Result<Vec<i64>, Failure> {
    for (index, one) in records.iter().enumerate() {
        let mut record: BaseRecord<str, str, Box<usize>> = BaseRecord::with_opaque_to(topic, Box::new(index));
        record.key = one["key"].as_str();
        record.payload = one["value"].as_str();
        record.partition = Some(number(one, "partition") as i32);
        record.timestamp = one["timeMs"].as_i64();
        record.headers = headers(&one["headers"]);
        producer.send(record).map_err(|(error, _)| Failure::from(error))?;
    }
    producer.flush(PATIENCE)?;
    let mut outcomes = std::mem::take(&mut *producer.context().0.lock().unwrap());
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome.map_err(Failure::from)).collect()
}

fn headers(given: &Value) -> Option<OwnedHeaders> {
    let pairs = given.as_array()?;
    let mut made = OwnedHeaders::new();
    for pair in pairs {
        made = made.insert(Header { key: pair[0].as_str().unwrap_or_default(), value: pair[1].as_str() });
    }
    Some(made)
}

pub fn produce(given: &Value) -> Outcome {
    let mut config = settings(given);
    if let Some(codec) = given["codec"].as_str() {
        config.set("compression.type", codec);
    }
    if let Some(acks) = given["acks"].as_i64() {
        config.set("acks", acks.to_string());
    }
    if given["idempotent"].as_bool() == Some(true) {
        config.set("enable.idempotence", "true");
    }
    let producer = a_producer(&mut config)?;
    let records = given["records"].as_array().cloned().unwrap_or_default();
    Ok(json!(send(&producer, text(given, "topic"), &records)?))
}

fn transactional(given: &Value) -> Result<BaseProducer<Deliveries>, Failure> {
    let producer = a_producer(settings(given).set("transactional.id", text(given, "id")))?;
    producer.init_transactions(PATIENCE)?;
    Ok(producer)
}

pub fn transact(given: &Value) -> Outcome {
    let producer = transactional(given)?;
    for step in given["steps"].as_array().into_iter().flatten() {
        producer.begin_transaction()?;
        let values = step["values"].as_array().into_iter().flatten();
        let records: Vec<Value> = values.map(|value| json!({"value": value, "partition": 0})).collect();
        send(&producer, text(step, "topic"), &records)?;
        if !text(step, "group").is_empty() {
            send_offset(given, &producer, step)?;
        }
        if step["isKept"].as_bool() == Some(true) {
            producer.commit_transaction(PATIENCE)?;
        } else {
            producer.abort_transaction(PATIENCE)?;
        }
    }
    Ok(Value::Null)
}

/// Put the offset of a group into the transaction; the group is known by a consumer of it.
fn send_offset(given: &Value, producer: &BaseProducer<Deliveries>, step: &Value) -> Result<(), Failure> {
    let consumer: BaseConsumer = settings(given).set("group.id", text(step, "group")).create()?;
    let group = consumer.group_metadata().ok_or(Failure::text("the consumer has no group"))?;
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition_offset(text(step, "topic"), 0, Offset::Offset(number(step, "offset")))?;
    Ok(producer.send_offsets_to_transaction(&offsets, &group, PATIENCE)?)
}

/// A second producer of the same id begins before the first one commits: the error code of the first.
pub fn fence(given: &Value) -> Outcome {
    let zombie = transactional(given)?;
    zombie.begin_transaction()?;
    send(&zombie, text(given, "topic"), &[json!({"value": "zombie", "partition": 0})])?;
    transact(given)?;
    match zombie.commit_transaction(PATIENCE) {
        Ok(()) => Ok(json!("")),
        Err(error) => Ok(json!(Failure::from(error).code())),
    }
}
