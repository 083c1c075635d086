// Publish three events with @azure/event-hubs; they share a partition key, so they stay in order.
import { EventHubProducerClient } from "@azure/event-hubs";

const producer = new EventHubProducerClient(process.env.EVENTHUB_CONNECTION_STRING, process.env.EVENTHUB_NAME);
const batch = await producer.createBatch({ partitionKey: "customer-7" });
for (const number of [0, 1, 2]) batch.tryAdd({ body: { text: `javascript ${number}` }, properties: { number } });
await producer.sendBatch(batch);
await producer.close();
console.log("published 3 events");
