// What tests have plain rhea do, an AMQP 1.0 client that knows nothing of Event Hubs: PLAIN sign-in, links, credit.
// Every operation takes `place` ({host, port, user, password, ca}) and gives facts.

import { readFileSync } from "node:fs";

import { rhea, WebSocket } from "./clients.mjs";

const WAIT_MS = 120_000;

function settings({ host, port, user, password, ca, webSocket }) {
  const login = { host, port, username: user, password, reconnect: false };
  if (webSocket) {
    const connect = rhea.websocket_connect(WebSocket);
    return { ...login, connection_details: connect(`wss://${host}:${port}/$servicebus/websocket`, ["AMQPWSB10"], {}) };
  }
  return ca ? { ...login, transport: "tls", ca: [readFileSync(ca)], servername: host } : login;
}

// Lets `script` steer a connection until it calls `finish` or `fail`, or something closes with an error.
function conversation(place, script) {
  const container = rhea.create_container();
  let connection;
  const facts = new Promise((finish, fail) => {
    const timer = setTimeout(() => fail(new Error("rhea: nothing happened in time")), WAIT_MS);
    const ended = (done) => (value) => (clearTimeout(timer), done(value));
    for (const part of ["sender", "receiver", "session", "connection"]) {
      container.on(`${part}_error`, (context) => ended(fail)(context[part].error ?? context.error));
    }
    container.on("disconnected", ({ error }) => ended(fail)(error ?? new Error("rhea: disconnected")));
    connection = container.connect(settings(place));
    script({ container, connection, finish: ended(finish), fail: ended(fail) });
  });
  return facts.finally(() => connection.close());
}

// Sends each message once there is credit; facts are the outcomes in the order of the messages.
export async function send({ place, address, messages }) {
  return conversation(place, ({ container, connection, finish }) => {
    const outcomes = messages.map(() => null);
    const numbers = new Map();
    let next = 0;
    const settle = (outcome) => (context) => {
      const error = context.delivery.remote_state?.error;
      outcomes[numbers.get(context.delivery.id)] = error ? `${outcome} ${error.condition}` : outcome;
      if (!outcomes.includes(null)) finish(outcomes);
    };
    for (const outcome of ["accepted", "rejected", "released", "modified"]) container.on(outcome, settle(outcome));
    container.on("sendable", ({ sender }) => {
      while (next < messages.length && sender.sendable()) numbers.set(sender.send(asMessage(messages[next])).id, next++);
    });
    connection.open_sender(address);
  });
}

function asMessage({ sizeBytes, ...message }) {
  return sizeBytes === undefined ? message : { ...message, body: rhea.message.data_section(Buffer.alloc(sizeBytes)) };
}

// So many messages, with an optional selector as the service's filter.
export async function receive({ place, address, count, selector }) {
  return conversation(place, ({ container, connection, finish }) => {
    const received = [];
    container.on("message", ({ message }) => {
      received.push(fact(message));
      if (received.length === count) finish([...received]);
    });
    const source = selector ? { address, filter: rhea.filter.selector(selector) } : { address };
    connection.open_receiver({ source, credit_window: 100 });
  });
}

function fact(message) {
  const { body, message_annotations: annotations = {}, application_properties: properties = {} } = message;
  const text = Buffer.isBuffer(body?.content) ? body.content.toString() : body;
  return { body: text, sequence: annotations["x-opt-sequence-number"], key: annotations["x-opt-partition-key"] ?? null, properties };
}

// Grants `credit` and drains: how many messages came, and how much credit the node then gave back.
export async function drain({ place, address, credit }) {
  return conversation(place, ({ container, connection, finish }) => {
    let received = 0;
    container.on("message", () => received++);
    container.on("receiver_open", ({ receiver }) => {
      receiver.drain = true;
      receiver.add_credit(credit);
    });
    container.on("receiver_drained", ({ receiver }) => finish({ received, creditLeft: receiver.credit }));
    const source = { address, filter: rhea.filter.selector("amqp.annotation.x-opt-offset > '-1'") };
    connection.open_receiver({ source, credit_window: 0 });
  });
}

// Grants credit in steps and notes how many messages came for each: never more than was granted.
export async function step({ place, address, credits }) {
  return conversation(place, ({ container, connection, finish }) => {
    const counts = [];
    let open = 0;
    container.on("receiver_open", ({ receiver }) => grant(receiver));
    container.on("message", ({ receiver }) => {
      counts[counts.length - 1]++;
      if (--open === 0) setTimeout(() => (counts.length === credits.length ? finish(counts) : grant(receiver)), 100);
    });
    function grant(receiver) {
      open = credits[counts.length];
      counts.push(0);
      receiver.add_credit(open);
    }
    const source = { address, filter: rhea.filter.selector("amqp.annotation.x-opt-offset > '-1'") };
    connection.open_receiver({ source, credit_window: 0 });
  });
}
