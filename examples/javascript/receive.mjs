// Read a hub from its beginning with @azure/event-hubs, until it has been quiet for two seconds.
import { earliestEventPosition, EventHubConsumerClient } from "@azure/event-hubs";

const QUIET_MS = 2000;
const { EVENTHUB_CONNECTION_STRING: connection, EVENTHUB_NAME: hub } = process.env;
const consumer = new EventHubConsumerClient(EventHubConsumerClient.defaultConsumerGroupName, connection, hub);

let quiet;
const finish = async () => {
  await subscription.close();
  await consumer.close();
};
const subscription = consumer.subscribe(
  {
    processEvents: async (events, context) => {
      for (const event of events) {
        console.log(`${context.partitionId}/${event.sequenceNumber}: ${JSON.stringify(event.body)}`);
        clearTimeout(quiet);
        quiet = setTimeout(finish, QUIET_MS);
      }
    },
    processError: async (error) => console.error(error.message),
  },
  { startPosition: earliestEventPosition, maxWaitTimeInSeconds: 1 },
);
