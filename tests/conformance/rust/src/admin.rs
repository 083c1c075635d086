//! Administration: topics, configurations, groups, offsets and records.

use std::time::{Duration, Instant};

use futures_executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Map, Value};

use crate::clients::{has_errors, number, settings, text, Context, Failure, Outcome, PATIENCE};

const TURN: Duration = Duration::from_secs(1);

fn an_admin(given: &Value) -> Result<AdminClient<Context>, Failure> {
    Ok(AdminClient::from_config_and_context(&settings(given), Context)?)
}

/// A client that asks for metadata and offsets; these are operations of a consumer here.
fn an_observer(given: &Value) -> Result<BaseConsumer<Context>, Failure> {
    let mut config = settings(given);
    let group = if text(given, "group").is_empty() { "none" } else { text(given, "group") };
    config.set("group.id", group).set("enable.auto.commit", "false");
    Ok(BaseConsumer::from_config_and_context(&config, Context)?)
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

/// The outcome for the one thing that was asked about.
fn only(results: Vec<Result<String, (String, RDKafkaErrorCode)>>) -> Outcome {
    match results.into_iter().next() {
        Some(Err((_, code))) => Err(Failure::of_code(code)),
        _ => Ok(Value::Null),
    }
}

fn place(given: &Value, offset: Offset) -> Result<TopicPartitionList, Failure> {
    let mut places = TopicPartitionList::new();
    places.add_partition_offset(text(given, "topic"), number(given, "partition") as i32, offset)?;
    Ok(places)
}

fn entries(given: &Value) -> Vec<(&str, &str)> {
    let configs = given["configs"].as_object().into_iter().flatten();
    configs.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default())).collect()
}

// --- topics

pub fn create_topic(given: &Value) -> Outcome {
    let partitions = number(given, "partitions") as i32;
    let mut topic = NewTopic::new(text(given, "topic"), partitions, TopicReplication::Fixed(1));
    for (name, value) in entries(given) {
        topic = topic.set(name, value);
    }
    only(block_on(an_admin(given)?.create_topics([&topic], &options()))?)
}

pub fn grow_topic(given: &Value) -> Outcome {
    let grown = NewPartitions::new(text(given, "topic"), number(given, "partitions") as usize);
    only(block_on(an_admin(given)?.create_partitions([&grown], &options()))?)
}

pub fn delete_topic(given: &Value) -> Outcome {
    only(block_on(an_admin(given)?.delete_topics(&[text(given, "topic")], &options()))?)
}

pub fn topics(given: &Value) -> Outcome {
    let observer = an_observer(given)?;
    // librdkafka tries again after a refused login, until the time is over: callbacks tell why.
    let deadline = Instant::now() + PATIENCE;
    let metadata = loop {
        match observer.fetch_metadata(None, TURN) {
            Ok(metadata) => break metadata,
            Err(error) if has_errors() || Instant::now() > deadline => return Err(error.into()),
            Err(_) => drop(observer.poll(TURN)),
        }
    };
    let counts: Map<String, Value> =
        metadata.topics().iter().map(|one| (one.name().to_string(), json!(one.partitions().len()))).collect();
    Ok(Value::Object(counts))
}

// --- configurations

pub fn configs(given: &Value) -> Outcome {
    let topic = ResourceSpecifier::Topic(text(given, "topic"));
    let described = block_on(an_admin(given)?.describe_configs([&topic], &options()))?;
    let mut found = Map::new();
    for resource in described {
        let resource = resource.map_err(Failure::of_code)?;
        found.extend(resource.entries.into_iter().map(|one| (one.name, json!(one.value))));
    }
    Ok(Value::Object(found))
}

pub fn alter_configs(given: &Value) -> Outcome {
    let mut change = AlterConfig::new(ResourceSpecifier::Topic(text(given, "topic")));
    for (name, value) in entries(given) {
        change = change.set(name, value);
    }
    let altered = block_on(an_admin(given)?.alter_configs([&change], &options()))?;
    match altered.into_iter().next() {
        Some(Err((_, code))) => Err(Failure::of_code(code)),
        _ => Ok(Value::Null),
    }
}

// --- groups

pub fn groups(given: &Value) -> Outcome {
    let listed = an_observer(given)?.fetch_group_list(None, PATIENCE)?;
    Ok(json!(listed.groups().iter().map(|one| one.name()).collect::<Vec<_>>()))
}

pub fn describe_group(given: &Value) -> Outcome {
    let listed = an_observer(given)?.fetch_group_list(Some(text(given, "group")), PATIENCE)?;
    let group = listed.groups().first().ok_or(Failure::text("no such group"))?;
    Ok(json!({"state": group.state(), "members": group.members().len()}))
}

pub fn group_offset(given: &Value) -> Outcome {
    let kept = an_observer(given)?.committed_offsets(place(given, Offset::Invalid)?, PATIENCE)?;
    Ok(json!(kept.elements()[0].offset().to_raw().unwrap_or(-1)))
}

pub fn move_group(given: &Value) -> Outcome {
    let target = place(given, Offset::Offset(number(given, "offset")))?;
    an_observer(given)?.commit(&target, CommitMode::Sync)?;
    Ok(Value::Null)
}

pub fn delete_group(given: &Value) -> Outcome {
    only(block_on(an_admin(given)?.delete_groups(&[text(given, "group")], &options()))?)
}

// --- offsets and records

pub fn bounds(given: &Value) -> Outcome {
    let partition = number(given, "partition") as i32;
    let (first, last) = an_observer(given)?.fetch_watermarks(text(given, "topic"), partition, PATIENCE)?;
    Ok(json!([first, last]))
}

pub fn offset_at(given: &Value) -> Outcome {
    let asked = place(given, Offset::Offset(number(given, "timeMs")))?;
    let found = an_observer(given)?.offsets_for_times(asked, PATIENCE)?;
    Ok(json!(found.elements()[0].offset().to_raw().unwrap_or(-1)))
}

pub fn delete_records(given: &Value) -> Outcome {
    let wanted = place(given, Offset::Offset(number(given, "offset")))?;
    let deleted = block_on(an_admin(given)?.delete_records(&wanted, &options()))?;
    for one in deleted.elements() {
        one.error()?;
    }
    Ok(Value::Null)
}
