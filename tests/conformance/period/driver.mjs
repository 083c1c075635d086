// Runs what a test asks of @azure/event-hubs 2.1: one JSON request a line on standard input, one JSON answer a line on
// standard output. Nothing is asserted here.

import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";

const installed = createRequire(join(process.env.HUBMERE_JS_CLIENTS, "package.json"));
const { EventHubClient, EventPosition } = installed("@azure/event-hubs");

const WAIT_MS = 180_000;

function aClient({ place }) {
  const { host, hub, name, key } = place;
  return EventHubClient.createFromConnectionString(
    `Endpoint=sb://${host}/;SharedAccessKeyName=${name};SharedAccessKey=${key}`, hub);
}

async function using(given, work) {
  const client = aClient(given);
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}

function event(text, key) {
  return { body: text, partitionKey: key ?? undefined, applicationProperties: { text: "größe" } };
}

function shown(one) {
  return {
    body: one.body,
    sequence: one.sequenceNumber,
    offset: one.offset,
    enqueuedMs: one.enqueuedTimeUtc.getTime(),
    key: one.partitionKey ?? null,
    properties: one.applicationProperties ?? {},
  };
}

// Reads until so many events came, an error or the time is over.
function reading(client, { partition, count, after = "-1" }, more = {}) {
  const events = [];
  let finish, fail, lose;
  const done = new Promise((resolve, reject) => ((finish = resolve), (fail = reject)));
  const lost = new Promise((resolve) => (lose = resolve));
  done.catch(() => {});
  const handle = client.receive(
    partition,
    (one) => {
      events.push(shown(one));
      if (events.length >= count) finish(events);
    },
    (error) => {
      fail(error);
      lose(error.name);
    },
    { eventPosition: EventPosition.fromOffset(after), ...more },
  );
  return { handle, done, lost };
}

function inTime(promise) {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error("took too long")), WAIT_MS)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

const OPERATIONS = {
  send: (given) =>
    using(given, async (client) => {
      for (const text of given.texts) await client.send(event(text, given.key), given.partition);
    }),
  send_batch: (given) =>
    using(given, async (client) => {
      await client.sendBatch(given.texts.map((text) => event(text, given.key)), given.partition);
    }),
  receive: (given) =>
    using(given, async (client) => {
      const reader = reading(client, given);
      const events = await inTime(reader.done);
      await reader.handle.stop();
      // More may have come than were asked for.
      return events.slice(0, given.count);
    }),
  contend: (given) =>
    using(given, (first) =>
      using(given, async (second) => {
        const owner = reading(first, { ...given, count: 1 }, { epoch: 1 });
        await inTime(owner.done);
        const taker = reading(second, { ...given, count: 1 }, { epoch: 2 });
        const events = await inTime(taker.done);
        return { newcomerReads: events.length > 0, owner: await inTime(owner.lost) };
      }),
    ),
  describe: (given) =>
    using(given, async (client) => {
      const hub = await client.getHubRuntimeInformation();
      return { name: hub.path, partitions: hub.partitionIds, createdMs: hub.createdAt.getTime() };
    }),
};

const stray = [];
process.on("unhandledRejection", (error) => stray.push(error));
for await (const line of createInterface({ input: process.stdin })) {
  const { name, arguments: given } = JSON.parse(line);
  let answer;
  try {
    answer = { facts: (await OPERATIONS[name](given)) ?? null };
  } catch (error) {
    answer = { error: { name: error.name ?? "", code: error.condition ?? "", message: String(error.message ?? error) } };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
process.exit(0);
