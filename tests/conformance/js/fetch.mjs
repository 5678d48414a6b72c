// How fast nats.js pulls, for scripts/benchmarks/bench_fetch.py. The first line of standard input has the servers; each line after it is
// a round: which of them, how, how many at a time and how many in all. Answers each with milliseconds, and those of its own CPU.

import { createInterface } from "node:readline";
import { connect } from "@nats-io/transport-node";
import { jetstream } from "@nats-io/jetstream";

const ways = {
  async fetch(consumer, batch, count) {
    for (let found = 0; found < count; ) {
      for await (const _ of await consumer.fetch({ max_messages: batch, expires: 30_000 })) found++;
    }
  },
  async consume(consumer, batch, count) {
    const messages = await consumer.consume({ max_messages: batch });
    let found = 0;
    for await (const _ of messages) if (++found === count) break;
    await messages.close();
  },
};

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const servers = JSON.parse((await lines.next()).value);
const connections = await Promise.all(servers.map(({ url, user, password }) => connect({ servers: [url], user, pass: password })));
for await (const line of { [Symbol.asyncIterator]: () => lines }) {
  const { at, how, batch, count, stream, name } = JSON.parse(line);
  const consumer = await jetstream(connections[at]).consumers.get(stream, name);
  const before = process.cpuUsage();
  const began = performance.now();
  await ways[how](consumer, batch, count);
  const took = performance.now() - began;
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify({ took, cpu: (user + system) / 1000 }));
}
await Promise.all(connections.map((one) => one.close()));
