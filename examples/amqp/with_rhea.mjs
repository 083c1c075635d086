// Send and receive with rhea, a client that knows AMQP 1.0 and nothing of Event Hubs. It signs in with the name and the
// key of a rule. A hub is a target address, a partition of a consumer group a source.
import rhea from "rhea";

const COUNT = 3;
const parts = new Map(
  process.env.EVENTHUB_CONNECTION_STRING.split(";").filter(Boolean).map((part) => {
    const at = part.indexOf("=");
    return [part.slice(0, at), part.slice(at + 1)];
  }),
);
const { hostname: host, port } = new URL(parts.get("Endpoint").replace("sb:", "http:"));
const hub = process.env.EVENTHUB_NAME;

const username = parts.get("SharedAccessKeyName");
const connection = rhea.connect({ host, port, username, password: parts.get("SharedAccessKey"), reconnect: false });
let sent = 0;
let received = 0;
rhea.on("sendable", ({ sender }) => {
  while (sent < COUNT && sender.sendable()) sender.send({ body: `rhea ${sent++}` });
});
rhea.on("message", ({ message }) => {
  console.log(message.body);
  if (++received === COUNT) connection.close();
});
connection.open_sender(`${hub}/Partitions/0`);
connection.open_receiver(`${hub}/ConsumerGroups/$Default/Partitions/0`);
