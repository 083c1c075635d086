//! Runs what a test asks for: one JSON request a line on standard input, one JSON answer a line on standard output.
//!
//!     {"module": "rdkafka", "name": "produce", "arguments": {...}}  ->  {"facts": ...}  or  {"error": {...}}
//!
//! Requests come one after the other; nothing is asserted here, tests judge the facts.

mod admin;
mod clients;
mod consume;
mod produce;

use std::io::{self, BufRead, Write};

use clients::{Failure, Outcome};
use serde_json::{json, Value};

fn carry_out(name: &str, given: &Value) -> Outcome {
    match name {
        "produce" => produce::produce(given),
        "transact" => produce::transact(given),
        "fence" => produce::fence(given),
        "read" => consume::read(given),
        "consume" => consume::consume(given),
        "share" => consume::share(given),
        "createTopic" => admin::create_topic(given),
        "growTopic" => admin::grow_topic(given),
        "deleteTopic" => admin::delete_topic(given),
        "topics" => admin::topics(given),
        "configs" => admin::configs(given),
        "alterConfigs" => admin::alter_configs(given),
        "groups" => admin::groups(given),
        "describeGroup" => admin::describe_group(given),
        "groupOffset" => admin::group_offset(given),
        "moveGroup" => admin::move_group(given),
        "deleteGroup" => admin::delete_group(given),
        "bounds" => admin::bounds(given),
        "offsetAt" => admin::offset_at(given),
        "deleteRecords" => admin::delete_records(given),
        other => Err(Failure::text(&format!("no operation {other}"))),
    }
}

fn answer(line: &str) -> Value {
    clients::forget_errors();
    let asked: Value = match serde_json::from_str(line) {
        Ok(asked) => asked,
        Err(error) => return json!({"error": Failure::text(&error.to_string()).shown()}),
    };
    match carry_out(asked["name"].as_str().unwrap_or_default(), &asked["arguments"]) {
        Ok(facts) => json!({ "facts": facts }),
        Err(failure) => json!({"error": failure.shown()}),
    }
}

fn main() {
    for line in io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let mut out = io::stdout().lock();
        if writeln!(out, "{}", answer(&line)).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
