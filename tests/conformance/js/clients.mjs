// The clients under test, unmodified, from the folder that `make js-clients` fills (HUBMERE_JS_CLIENTS).
// They stand outside the source tree, where an `import` by name would not look for them.

import { createRequire } from "node:module";
import { join } from "node:path";

const installed = createRequire(join(process.env.HUBMERE_JS_CLIENTS, "package.json"));

export const eventHubs = installed("@azure/event-hubs");
export const kafkajs = installed("kafkajs");
export const rhea = installed("rhea");
export const WebSocket = installed("ws");
export const checkpointStore = installed("@azure/eventhubs-checkpointstore-blob");
export const identity = installed("@azure/identity");
export const storageBlob = installed("@azure/storage-blob");
