//! Consumers: of partitions of one's own choice, and members of groups.

use std::time::{Duration, Instant};

use rdkafka::config::{ClientConfig, FromClientConfigAndContext};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::clients::{number, settings, text, Context, Failure, Outcome};

const WAIT: Duration = Duration::from_secs(100);
const TURN: Duration = Duration::from_millis(50);

fn a_consumer(config: &mut ClientConfig) -> Result<BaseConsumer<Context>, Failure> {
    config.set("enable.auto.commit", "false").set("auto.offset.reset", "earliest");
    Ok(BaseConsumer::from_config_and_context(config, Context)?)
}

fn shown(message: &BorrowedMessage<'_>) -> Value {
    let text = |data: Option<&[u8]>| data.map(|data| String::from_utf8_lossy(data).into_owned());
    let headers: Vec<Value> = message
        .headers()
        .map(|all| all.iter().map(|one| json!([one.key, text(one.value)])).collect())
        .unwrap_or_default();
    json!({
        "partition": message.partition(), "offset": message.offset(), "timeMs": message.timestamp().to_millis(),
        "key": text(message.key()), "value": text(message.payload()), "headers": headers,
    })
}

fn poll(consumer: &BaseConsumer<Context>, count: usize) -> Result<Vec<Value>, Failure> {
    let deadline = Instant::now() + WAIT;
    let mut records = Vec::new();
    while records.len() < count && Instant::now() < deadline {
        if let Some(message) = consumer.poll(TURN) {
            records.push(shown(&message?));
        }
    }
    if records.len() < count {
        return Err(Failure::text(&format!("{} of {count} records in time", records.len())));
    }
    Ok(records)
}

pub fn read(given: &Value) -> Outcome {
    let level = if given["committed"].as_bool() == Some(true) { "read_committed" } else { "read_uncommitted" };
    let consumer = a_consumer(settings(given).set("group.id", "none").set("isolation.level", level))?;
    let start = match number(given, "start") {
        -2 => Offset::Beginning,
        -1 => Offset::End,
        offset => Offset::Offset(offset),
    };
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(text(given, "topic"), number(given, "partition") as i32, start)?;
    consumer.assign(&places)?;
    Ok(json!(poll(&consumer, number(given, "count") as usize)?))
}

fn a_member(given: &Value) -> Result<BaseConsumer<Context>, Failure> {
    let mut config = settings(given);
    config
        .set("group.id", text(given, "group"))
        .set("heartbeat.interval.ms", "200")
        .set("session.timeout.ms", "60000");
    if !text(given, "instance").is_empty() {
        config.set("group.instance.id", text(given, "instance"));
    }
    let consumer = a_consumer(&mut config)?;
    consumer.subscribe(&[text(given, "topic")])?;
    Ok(consumer)
}

pub fn consume(given: &Value) -> Outcome {
    let consumer = a_member(given)?;
    let records = poll(&consumer, number(given, "count") as usize)?;
    consumer.commit_consumer_state(CommitMode::Sync)?;
    Ok(json!(records))
}

/// Members join one after the other until each has partitions and none is left over: who has which.
pub fn share(given: &Value) -> Outcome {
    let count = number(given, "count") as usize;
    let mut members = Vec::new();
    let mut held = Vec::new();
    for _ in 0..number(given, "members") {
        members.push(a_member(given)?);
        held = shared(&members, count)?;
    }
    Ok(json!(held))
}

fn shared(members: &[BaseConsumer<Context>], count: usize) -> Result<Vec<Vec<i32>>, Failure> {
    let deadline = Instant::now() + WAIT;
    while Instant::now() < deadline {
        let mut held = Vec::new();
        for member in members {
            if let Some(message) = member.poll(TURN) {
                message?;
            }
            let assigned = member.assignment()?;
            held.push(assigned.elements().iter().map(|one| one.partition()).collect::<Vec<i32>>());
        }
        let total: usize = held.iter().map(Vec::len).sum();
        if total == count && held.iter().all(|mine| !mine.is_empty()) {
            return Ok(held);
        }
    }
    Err(Failure::text("the members did not share in time"))
}
