// What tests have @azure/event-hubs do. Every operation takes `place` ({connection, hub, webSocket}) and gives facts.

import { eventHubs, WebSocket } from "./clients.mjs";

const { EventHubBufferedProducerClient, EventHubConsumerClient, EventHubProducerClient } = eventHubs;

// The SDK tries three times, up to a minute each: a test that fails should do so sooner.
const QUICK = { maxRetries: 1, retryDelayInMs: 50, timeoutInMs: 60_000 };
const WAIT_MS = 120_000;

function options({ webSocket }, more = {}) {
  const transport = webSocket ? { webSocketOptions: { webSocket: WebSocket } } : {};
  return { retryOptions: QUICK, ...transport, ...more };
}

function aProducer(place, more) {
  return new EventHubProducerClient(place.connection, place.hub, options(place, more));
}

function aConsumer(place, group = "$Default") {
  return new EventHubConsumerClient(group, place.connection, place.hub, options(place));
}

async function using(client, work) {
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}

function fact(event, context) {
  return {
    body: event.body,
    partition: context.partitionId,
    sequence: event.sequenceNumber,
    offset: event.offset,
    enqueuedMs: event.enqueuedTimeUtc.getTime(),
    key: event.partitionKey ?? null,
    properties: event.properties ?? {},
    messageId: event.messageId ?? null,
    correlationId: event.correlationId ?? null,
    contentType: event.contentType ?? null,
    last: context.lastEnqueuedEventProperties ?? null,
  };
}

// --- sending

// One batch of events; `target` names a partition or a key.
export async function sendBatch({ place, events, target = {} }) {
  return using(aProducer(place), async (producer) => {
    const batch = await producer.createBatch(target);
    const fitted = events.map((event) => batch.tryAdd(event));
    await producer.sendBatch(batch);
    return { fitted: fitted.filter(Boolean).length, limitBytes: batch.maxSizeInBytes };
  });
}

// Each event by itself, many of them in flight on one link.
export async function sendSingles({ place, events, target = {} }) {
  return using(aProducer(place), async (producer) => {
    await Promise.all(events.map((event) => producer.sendBatch([event], target)));
  });
}

// An event by a producer that stays for the next call; `last` closes it.
let kept = null;
export async function sendKept({ place, body, last = false }) {
  kept ??= aProducer(place);
  await kept.sendBatch([{ body }], { partitionId: "0" });
  if (last) {
    await kept.close();
    kept = null;
  }
}

// One event of this size, which the SDK hands on without looking at it.
export async function sendLarge({ place, sizeBytes }) {
  return using(aProducer(place), (producer) => producer.sendBatch([{ body: Buffer.alloc(sizeBytes) }]));
}

export async function sendBuffered({ place, count, idempotent }) {
  const result = { sent: 0, errors: [] };
  const more = {
    maxWaitTimeInMs: 100,
    maxEventBufferLengthPerPartition: 200,
    enableIdempotentRetries: idempotent,
    onSendEventsSuccessHandler: ({ events }) => (result.sent += events.length),
    onSendEventsErrorHandler: ({ error }) => result.errors.push(error.message),
  };
  const producer = new EventHubBufferedProducerClient(place.connection, place.hub, options(place, more));
  for (let number = 0; number < count; number++) {
    await producer.enqueueEvent({ body: number });
  }
  await producer.flush();
  await producer.close();
  return result;
}

// An idempotent producer on partition 0 with a state of its own choice, as the buffered one has inside.
function anIdempotentProducer(place, state, more) {
  const producer = aProducer(place, more);
  producer._enableIdempotentRetries = true;
  producer._partitionOptions = { 0: state };
  return producer;
}

// Each body in a batch of its own, or all in one.
export async function sendIdempotent({ place, state, bodies, together = false }) {
  const events = bodies.map((body) => ({ body }));
  return using(anIdempotentProducer(place, state), async (producer) => {
    for (const batch of together ? [events] : events.map((event) => [event])) {
      await producer.sendBatch(batch, { partitionId: "0" });
    }
    return producer.getPartitionPublishingProperties("0");
  });
}

// Stops reading now and hangs up later: the node gets what is sent meanwhile, the client never sees the answer.
function goDeaf(connection) {
  const { socket } = connection;
  socket.removeAllListeners?.("data");
  socket.on("data", () => {});
  setTimeout(() => {
    connection.abort_socket(socket);
    socket.end();
  }, 300);
}

// Cuts the connection while a send is on its way: the SDK connects again and repeats it.
export async function sendIdempotentThroughDisconnect({ place }) {
  // It repeats the send once this time is up.
  const more = { retryOptions: { ...QUICK, timeoutInMs: 15_000 } };
  return using(anIdempotentProducer(place, {}, more), async (producer) => {
    const target = { partitionId: "0" };
    await producer.sendBatch([{ body: "before" }], target);
    const sending = producer.sendBatch([{ body: "cut off" }], target);
    goDeaf(producer._context.connection._connection);
    await sending;
    await producer.sendBatch([{ body: "after" }], target);
    return (await producer.getPartitionPublishingProperties("0")).lastPublishedSequenceNumber;
  });
}

// The second producer of a group with a higher owner level takes the partition from the first.
export async function takeOverProducer({ place }) {
  const first = anIdempotentProducer(place, { producerGroupId: 7, ownerLevel: 1 });
  const second = anIdempotentProducer(place, { producerGroupId: 7, ownerLevel: 2 });
  try {
    await first.sendBatch([{ body: "first" }], { partitionId: "0" });
    await second.sendBatch([{ body: "second" }], { partitionId: "0" });
    await first.sendBatch([{ body: "late" }], { partitionId: "0" });
  } finally {
    await Promise.all([first.close(), second.close()]);
  }
}

// --- receiving

// A subscription that collects facts until `count` of them or an error are there.
class Reading {
  constructor(consumer, { partition, count, start, more = {} }) {
    this.events = [];
    this.error = null;
    this.done = new Promise((resolve) => (this.finish = resolve));
    this.failed = new Promise((resolve) => (this.noteFailure = resolve));
    const handlers = {
      processEvents: async (events, context) => this.take(events, context, count),
      processError: async (error) => this.fail(error),
    };
    const settings = { startPosition: start, maxWaitTimeInSeconds: 1, ...more };
    this.subscription = partition
      ? consumer.subscribe(partition, handlers, settings)
      : consumer.subscribe(handlers, settings);
  }

  take(events, context, count) {
    this.events.push(...events.map((event) => fact(event, context)));
    if (this.events.length >= count) this.finish();
  }

  fail(error) {
    this.error ??= error;
    this.finish();
    this.noteFailure();
  }

  // Until it is done, or time is up: what is there by then are the facts.
  async wait(limitMs = WAIT_MS) {
    let timer;
    await Promise.race([this.done, new Promise((resolve) => (timer = setTimeout(resolve, limitMs)))]);
    clearTimeout(timer);
  }

  untilError() {
    return this.failed;
  }

  async close() {
    await this.subscription.close();
    if (this.error) throw this.error;
    return this.events;
  }
}

// So many events of a partition, or of all when none is named; `start` is an EventPosition, `more` SubscribeOptions.
export async function receive({ place, group, partition, count, start = { offset: "-1" }, more }) {
  return using(aConsumer(place, group), async (consumer) => {
    const reading = new Reading(consumer, { partition, count, start: asPosition(start), more });
    await reading.wait();
    return reading.close();
  });
}

function asPosition(start) {
  return "enqueuedOn" in start ? { ...start, enqueuedOn: new Date(start.enqueuedOn) } : start;
}

// Reads from the end while events are published until one arrives.
export async function receiveLatest({ place }) {
  return using(aConsumer(place), (consumer) =>
    using(aProducer(place), async (producer) => {
      const reading = new Reading(consumer, { partition: "0", count: 1, start: { offset: "@latest" } });
      for (let number = 0; !reading.events.length && !reading.error && number < 500; number++) {
        await producer.sendBatch([{ body: number }], { partitionId: "0" });
        await reading.wait(20);
      }
      return reading.close();
    }),
  );
}

// A reader with this owner level holds partition 0 while another comes with `newcomer` (no level: undefined).
// Facts: how the owner's and the newcomer's reading ended (null: it goes on).
export async function contend({ place, owner, newcomer }) {
  return using(aConsumer(place), (first) =>
    using(aConsumer(place), async (second) => {
      const held = aReader(first, owner);
      await held.wait();
      const lost = held.untilError();
      const taken = aReader(second, newcomer);
      await Promise.race([taken.wait(), lost]);
      await Promise.race([lost, taken.untilError(), new Promise((resolve) => setTimeout(resolve, WAIT_MS))]);
      return { owner: await failureOf(held), newcomer: await failureOf(taken) };
    }),
  );
}

function aReader(consumer, ownerLevel) {
  const more = ownerLevel === undefined || ownerLevel === null ? {} : { ownerLevel };
  return new Reading(consumer, { partition: "0", count: 1, start: { offset: "-1" }, more });
}

async function failureOf(reading) {
  return reading.close().then(
    () => null,
    (error) => error.code ?? error.name,
  );
}

// Opens one reader after the other on partition 0, each reading an event, and keeps them open until one is refused.
export async function crowd({ place, readers }) {
  const consumers = Array.from({ length: readers }, () => aConsumer(place));
  const readings = [];
  try {
    for (const consumer of consumers) {
      readings.push(aReader(consumer));
      await readings.at(-1).wait();
    }
    return { served: readings.filter(({ events }) => events.length).length, codes: await Promise.all(readings.map(failureOf)) };
  } finally {
    await Promise.all(consumers.map((consumer) => consumer.close()));
  }
}

// --- asking

export async function describe({ place }) {
  return using(aProducer(place), async (producer) => {
    const hub = await producer.getEventHubProperties();
    const partitions = await Promise.all(hub.partitionIds.map((id) => producer.getPartitionProperties(id)));
    return { hub: { ...hub, createdMs: hub.createdOn.getTime() }, partitions };
  });
}
