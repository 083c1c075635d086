// What tests have kafkajs do: produce, consume, groups, transactions and administration.
// Every operation takes `place` ({broker, ca, user, password}) and gives facts.

import { readFileSync } from "node:fs";

import { kafkajs } from "./clients.mjs";

const WAIT_MS = 120_000;
// The next transaction is refused until the coordinator has ended the one before: minutes for brokers on a busy machine.
const UNTIL_ENDED = { retries: 100, initialRetryTime: 50, maxRetryTime: 2_000 };

function connect({ broker, ca, user, password }) {
  return new kafkajs.Kafka({
    brokers: [broker],
    ssl: ca ? { ca: [readFileSync(ca, "utf-8")] } : false,
    sasl: { mechanism: "plain", username: user, password },
    logLevel: kafkajs.logLevel.NOTHING,
    // A test that fails should do so soon.
    retry: { retries: 3, initialRetryTime: 50 },
    // By default a connection has one second: too little for TLS on a busy machine.
    connectionTimeout: 60_000,
    authenticationTimeout: 60_000,
    requestTimeout: 100_000,
  });
}

async function using(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

function inTime(promise, what) {
  let timer;
  const late = new Promise((_, fail) => (timer = setTimeout(() => fail(new Error(`kafkajs: ${what} took too long`)), WAIT_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const text = (value) => (value === null || value === undefined ? null : value.toString());

function shown({ topic, partition, message }) {
  const headers = Object.fromEntries(Object.entries(message.headers ?? {}).map(([name, value]) => [name, text(value)]));
  const { offset, timestamp } = message;
  return { topic, partition, offset: Number(offset), timeMs: Number(timestamp), key: text(message.key), value: text(message.value), headers };
}

// --- producing

export async function produce({ place, topic, messages, codec = "None", acks = -1, idempotent = false }) {
  const compression = kafkajs.CompressionTypes[codec];
  const settings = { idempotent, ...(idempotent ? { maxInFlightRequests: 1 } : {}) };
  return using(connect(place).producer(settings), (producer) => producer.send({ topic, messages, acks, compression }));
}

// Each step is a transaction: what it sends where, and whether it is kept.
export async function transact({ place, id, steps }) {
  const settings = { transactionalId: id, idempotent: true, maxInFlightRequests: 1, retry: UNTIL_ENDED };
  return using(connect(place).producer(settings), async (producer) => {
    for (const { topic, messages, isKept, offsets } of steps) {
      const transaction = await producer.transaction();
      await transaction.send({ topic, messages });
      if (offsets) await transaction.sendOffsets(offsets);
      await (isKept ? transaction.commit() : transaction.abort());
    }
  });
}

// --- consuming

// Reads as a member of a group until so many messages came, and leaves; what was read is committed on the way out.
export async function consume({ place, group, topic, count, readUncommitted = false, seek }) {
  const consumer = connect(place).consumer({ groupId: group, readUncommitted, maxWaitTimeInMs: 200 });
  return using(consumer, async () => {
    await consumer.subscribe({ topic, fromBeginning: true });
    const read = [];
    const done = new Promise((finish) => {
      consumer.run({
        eachMessage: async (given) => {
          read.push(shown(given));
          if (read.length >= count) finish();
        },
      });
    });
    if (seek) consumer.seek({ topic, ...seek });
    await inTime(done, "reading");
    await consumer.stop();
    return read;
  });
}

// Members join one after the other until each has partitions; who has which at the end, and what the group looks like.
export async function share({ place, group, topic, members, count }) {
  const client = connect(place);
  const held = new Map();
  let changed = () => {};
  const consumers = [...Array(members).keys()].map((number) => {
    const consumer = client.consumer({ groupId: group, sessionTimeout: 60_000, heartbeatInterval: 200, maxWaitTimeInMs: 200 });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      held.set(number, (payload.memberAssignment[topic] ?? []).toSorted());
      changed();
    });
    return consumer;
  });
  try {
    for (const consumer of consumers) {
      await consumer.connect();
      await consumer.subscribe({ topic, fromBeginning: true });
      await consumer.run({ eachMessage: async () => {} });
    }
    const isShared = () => held.size === members && [...held.values()].every((one) => one.length) && [...held.values()].flat().length === count;
    await inTime(new Promise((finish) => (changed = () => isShared() && finish(), changed())), "sharing");
    const described = await using(client.admin(), (admin) => admin.describeGroups([group]));
    return { held: [...held.values()], state: described.groups[0].state, members: described.groups[0].members.length };
  } finally {
    await Promise.all(consumers.map((consumer) => consumer.disconnect()));
  }
}

// --- administration

export async function administer({ place, task, given }) {
  return using(connect(place).admin(), (admin) => admin[task](given ?? undefined));
}

// kafkajs finds the leaders only of topics that this client has asked about before.
export async function deleteRecords({ place, topic, partitions }) {
  return using(connect(place).admin(), async (admin) => {
    await admin.fetchTopicOffsets(topic);
    await admin.deleteTopicRecords({ topic, partitions });
    return admin.fetchTopicOffsets(topic);
  });
}
