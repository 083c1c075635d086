// Runs what a test asks for: one JSON request a line on standard input, one JSON answer a line on standard output.
//   {"module": "event_hubs", "name": "send", "arguments": {...}}  ->  {"facts": ...}  or  {"error": {...}}
// Requests come one after the other; nothing is asserted here, tests judge the facts.

import { createInterface } from "node:readline";

// An error inside a client that nobody waits for must not end the process before the test has its answer.
const stray = [];
process.on("uncaughtException", (error) => stray.push(error));
process.on("unhandledRejection", (error) => stray.push(error));

// The SDK throws an AggregateError of one error for each try; the last is why it gave up.
function describeError(error) {
  if (error instanceof AggregateError) return describeError(error.errors.at(-1));
  const { name, code, condition, message, retryable } = error ?? {};
  return { name: name ?? typeof error, code: code ?? condition ?? "", message: message ?? String(error), retryable };
}

async function answer({ module, name, arguments: given }) {
  try {
    const operations = await import(`./${module}.mjs`);
    const facts = await operations[name](given);
    return { facts: facts ?? null, stray: stray.splice(0).map(describeError) };
  } catch (error) {
    return { error: describeError(error), stray: stray.splice(0).map(describeError) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
}
process.exit(0);
