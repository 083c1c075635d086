// What tests have @azure/identity do: get a token from the node's own issuer, with environment variables only.

import { eventHubs, identity } from "./clients.mjs";

const CREDENTIALS = {
  default: () => new identity.DefaultAzureCredential(),
  environment: () => new identity.EnvironmentCredential(),
  managed: () => new identity.ManagedIdentityCredential(),
  workload: () => new identity.WorkloadIdentityCredential(),
  cli: () => new identity.AzureCliCredential(),
};
const WAIT_MS = 60_000;

// Publishes an event and reads it again, signed in by AMQP with a credential of the library.
export async function roundTrip({ kind, address, hub, body }) {
  const credential = CREDENTIALS[kind]();
  const options = { customEndpointAddress: `sb://${address}`, retryOptions: { maxRetries: 1 } };
  const producer = new eventHubs.EventHubProducerClient("localhost", hub, credential, options);
  const batch = await producer.createBatch({ partitionId: "0" });
  batch.tryAdd({ body });
  await producer.sendBatch(batch);
  await producer.close();
  const consumer = new eventHubs.EventHubConsumerClient("$Default", "localhost", hub, credential, options);
  const seen = await received(consumer, body);
  await consumer.close();
  return { seen };
}

async function received(consumer, body) {
  const seen = [];
  let subscription;
  await new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, WAIT_MS);
    subscription = consumer.subscribe(
      "0",
      {
        processEvents: async (events) => {
          seen.push(...events.map((event) => event.body));
          if (seen.includes(body)) {
            clearTimeout(timer);
            resolve();
          }
        },
        processError: async (error) => reject(error),
      },
      { startPosition: { offset: "-1" }, maxWaitTimeInSeconds: 1 },
    );
  });
  await subscription.close();
  return seen;
}
