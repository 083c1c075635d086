// What tests have @azure/eventhubs-checkpointstore-blob do with the node's own storage account.

import { checkpointStore, eventHubs, storageBlob } from "./clients.mjs";

const WAIT_MS = 120_000;

// Processes events from the checkpoints of a container until `count` of them are seen; each batch is checkpointed.
export async function process({ place, storage, container, count }) {
  const blobs = new storageBlob.ContainerClient(storage, container);
  await blobs.createIfNotExists();
  const store = new checkpointStore.BlobCheckpointStore(blobs);
  const consumer = new eventHubs.EventHubConsumerClient("$Default", place.connection, place.hub, store);
  const seen = [];
  let finish;
  const done = new Promise((resolve) => (finish = resolve));
  const timer = setTimeout(() => finish(), WAIT_MS);
  const subscription = consumer.subscribe(
    {
      processEvents: async (events, context) => {
        if (events.length === 0) return;
        seen.push(...events.map((event) => event.body));
        await context.updateCheckpoint(events.at(-1));
        if (seen.length >= count) finish();
      },
      processError: async () => {},
    },
    { startPosition: { offset: "-1" }, maxWaitTimeInSeconds: 1 },
  );
  await done;
  clearTimeout(timer);
  await subscription.close();
  await consumer.close();
  const names = [];
  for await (const blob of blobs.listBlobsFlat({ includeMetadata: true })) names.push(blob.name);
  return { seen, names };
}
