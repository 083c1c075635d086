//! How clients find and enter a node, and how their errors are shown.

use std::sync::Mutex;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use serde_json::{json, Value};

/// Time for one step: several of them are below the time that the test waits for the answer.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub type Outcome = Result<Value, Failure>;

/// What librdkafka told in callbacks: why a broker refused the login is nowhere else.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn forget_errors() {
    ERRORS.lock().unwrap().clear();
}

pub fn has_errors() -> bool {
    !ERRORS.lock().unwrap().is_empty()
}

pub struct Context;

impl ClientContext for Context {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: KafkaError, reason: &str) {
        ERRORS.lock().unwrap().push(reason.to_string());
    }
}

impl ConsumerContext for Context {}

pub struct Failure {
    code: String,
    message: String,
}

impl Failure {
    pub fn text(message: &str) -> Failure {
        Failure { code: String::new(), message: message.to_string() }
    }

    pub fn of_code(code: RDKafkaErrorCode) -> Failure {
        Failure { code: (code as i32).to_string(), message: code.to_string() }
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    pub fn shown(&self) -> Value {
        let told = ERRORS.lock().unwrap().join("\n");
        json!({"name": "KafkaError", "code": self.code, "message": format!("{}\n{told}", self.message)})
    }
}

impl From<KafkaError> for Failure {
    fn from(error: KafkaError) -> Failure {
        let code = match &error {
            KafkaError::Transaction(inner) => Some(inner.code()),
            other => other.rdkafka_error_code(),
        };
        let code = code.map(|code| (code as i32).to_string()).unwrap_or_default();
        Failure { code, message: error.to_string() }
    }
}

pub fn text<'a>(given: &'a Value, name: &str) -> &'a str {
    given[name].as_str().unwrap_or_default()
}

pub fn number(given: &Value, name: &str) -> i64 {
    given[name].as_i64().unwrap_or_default()
}

/// The settings that users have for Event Hubs.
pub fn settings(given: &Value) -> ClientConfig {
    let place = &given["place"];
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", text(place, "broker"))
        .set("security.protocol", "SASL_PLAINTEXT")
        .set("sasl.mechanism", "PLAIN")
        .set("sasl.username", text(place, "user"))
        .set("sasl.password", text(place, "password"))
        .set("log_level", "0")
        .set("fetch.wait.max.ms", "200");
    config
}
