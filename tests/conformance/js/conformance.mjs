// What nats.js can do by the virtual name. Takes places as JSON on standard input, writes what each operation came to as JSON.
// Groups and names are those of tests/conformance/operations.py and buckets.py: one table shows both clients.

import { readFileSync } from "node:fs";
import { connect, credsAuthenticator, nanos } from "@nats-io/transport-node";
import { AckPolicy, DeliverPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";

const PATIENCE = 20_000;
const SOON = 3_000;
const LIMIT = 60_000;
const COUNT = 3;
const LARGE = 300_000;

class Differs extends Error {}

const must = (holds, otherwise) => {
  if (!holds) throw new Differs(otherwise);
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function eventually(holds, otherwise, within = PATIENCE) {
  const deadline = Date.now() + within;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Differs(otherwise);
    await pause(20);
  }
}

// What is asked about a consumer that was just made. Its own server has said that it is there; the meta leader may hear of it
// later, and answers 10014 until then, on any cluster (docs/routing.md).
async function known(ask) {
  const deadline = Date.now() + PATIENCE;
  while (true) {
    try {
      return await ask();
    } catch (error) {
      if (error.code !== 10014 || Date.now() > deadline) throw error;
      await pause(20);
    }
  }
}

// Expectations of a whole stream, beside publishes of others.
async function undisturbed(publish) {
  for (let tries = 0; tries < 20; tries++) {
    try {
      return await publish();
    } catch (error) {
      if (error.code !== 10070 && error.code !== 10071) throw error;
    }
  }
  throw new Differs("never the last");
}

async function refused(code, promise, otherwise) {
  try {
    await promise;
  } catch (error) {
    if (error.code === code) return;
    throw error;
  }
  throw new Differs(otherwise);
}

function reason(error) {
  if (error instanceof Differs) return error.message;
  if (/no stream matches/i.test(error.message)) return "not found";
  if (typeof error.code === "number" && error.code > 1000) return `${error.code} ${error.message.split(":")[0]}`;
  const text = `${error.name} ${error.message} ${error.cause?.name ?? ""}`;
  if (/NoResponders|no responders/i.test(text)) return "no responders";
  if (/Timeout|timeout/.test(text)) return "no answer";
  if (/PermissionViolation|Permissions Violation/.test(text)) return "no answer";
  return error.message || error.name;
}

class Place {
  constructor({ stream, heard, region, others }, nc, js, jsm) {
    Object.assign(this, { stream, heard, region, others, nc, js, jsm, number: 0 });
  }
  fresh() {
    return `js-${this.region}-${this.number++}`;
  }
  subject() {
    return `${this.stream}.${this.fresh()}`;
  }
  async stored(count = 1) {
    const subject = this.subject();
    for (let n = 0; n < count; n++) await this.js.publish(subject, String(n));
    await this.shown(subject, String(count - 1));
    return subject;
  }
  async shown(subject, text, stream = this.stream) {
    await eventually(async () => {
      const message = await this.jsm.direct.getMessage(stream, { last_by_subj: subject });
      return message?.string() === text;
    }, `nothing of ${subject} arrived`);
  }
  async physical() {
    return (await this.jsm.streams.info(this.stream)).config.name;
  }
  async made(stream, config) {
    const name = this.fresh();
    await this.jsm.consumers.add(stream, { ack_policy: AckPolicy.Explicit, durable_name: name, ...config });
    return name;
  }
  async fetched(name, count, options = {}) {
    const consumer = await this.js.consumers.get(this.stream, name);
    const found = [];
    for (let tries = 0; tries < 50 && found.length < count; tries++) {
      const batch = await consumer.fetch({ max_messages: count - found.length, expires: 5_000, ...options });
      try {
        for await (const message of batch) found.push(message);
      } catch (error) {
        if (reason(error) !== "no responders") throw error; // a consumer in another cluster, just made
        await pause(20);
      }
    }
    must(found.length === count, `${found.length} of ${count} messages`);
    return found;
  }
  // Nothing comes. The client gives up for heartbeats that are late, as they are on a busy machine.
  async without(name, otherwise) {
    const consumer = await this.js.consumers.get(this.stream, name);
    for (let tries = 0; ; tries++) {
      try {
        must((await consumer.next({ expires: 1_000 })) === null, otherwise);
        return;
      } catch (error) {
        if (tries === 10 || !reason(error).includes("heartbeats missed")) throw error;
      }
    }
  }
  // Consumes with a consumer until all of subject has come.
  async consumed(consumer, subject, otherwise = "not all came", within = 30_000) {
    const messages = await consumer.consume();
    const late = setTimeout(() => messages.close(), within);
    let seen = 0;
    for await (const message of messages) {
      message.ack();
      if (message.subject === subject && ++seen === COUNT) break;
    }
    clearTimeout(late);
    await messages.close();
    must(seen === COUNT, otherwise);
  }
  async pushed(subject, deliver_subject, config, within) {
    const name = await this.made(this.stream, { deliver_subject, ...config });
    await this.consumed(await this.js.consumers.getPushConsumer(this.stream, name), subject, "no answer", within);
  }
  inbox() {
    return `_INBOX.${this.fresh()}-${Math.random().toString(36).slice(2)}`;
  }
}

const publishing = {
  publish: async (p) => must((await p.js.publish(p.subject(), "")).seq > 0, "no sequence"),
  "the acknowledgement names the virtual stream": async (p) =>
    must((await p.js.publish(p.subject(), "")).stream === p.stream, "named physically"),
  "a message id twice": async (p) => {
    const [subject, msgID] = [p.subject(), p.fresh()];
    const first = await p.js.publish(subject, "", { msgID });
    must(!first.duplicate && (await p.js.publish(subject, "", { msgID })).duplicate, "stored twice");
  },
  "expect the stream's name": (p) => p.js.publish(p.subject(), "", { expect: { streamName: p.stream } }),
  "expect the last message id": (p) =>
    p.stream === "stretch" // as with the other client, see reasons.py
      ? Promise.reject(new Differs("not tried"))
      : undisturbed(async () => {
          const lastMsgID = p.fresh();
          await p.js.publish(p.subject(), "", { msgID: lastMsgID });
          await p.js.publish(p.subject(), "", { expect: { lastMsgID } });
        }),
  "expect the last sequence": (p) =>
    undisturbed(async () => {
      const { seq } = await p.js.publish(p.subject(), "");
      await p.js.publish(p.subject(), "", { expect: { lastSequence: seq } });
    }),
  "expect a subject's sequence, from an acknowledgement": async (p) => {
    const subject = p.subject();
    const expect = { lastSubjectSequence: (await p.js.publish(subject, "")).seq };
    await p.js.publish(subject, "", { expect });
    await refused(10071, p.js.publish(subject, "", { expect }), "not compared");
  },
  "expect a subject's sequence, from a read": async (p) => {
    const subject = await p.stored();
    const read = await p.jsm.direct.getMessage(p.stream, { last_by_subj: subject });
    await p.js.publish(subject, "", { expect: { lastSubjectSequence: read.seq } });
  },
  "expect that nothing is below a wildcard": async (p) => {
    const below = p.subject();
    const expect = { lastSubjectSequence: 0, lastSubjectSequenceSubject: `${below}.*` };
    await p.js.publish(`${below}.a`, "", { expect });
    await refused(10071, p.js.publish(`${below}.b`, "", { expect }), "accepted although there is one");
  },
  "core publish": async (p) => {
    const subject = p.subject();
    p.nc.publish(subject, "0");
    await p.shown(subject, "0");
  },
  "core subscribe: one copy, the original subject": async (p) => {
    const subject = `${p.heard}.${p.fresh()}`;
    let copies = 0;
    const subscription = p.nc.subscribe(`${p.heard}.>`, {
      callback: (_, message) => {
        copies += message.subject === subject ? 1 : 0;
      },
    });
    await p.nc.flush();
    await p.js.publish(subject, "0");
    await p.shown(subject, "0", p.heard);
    await p.stored();
    await pause(300);
    subscription.unsubscribe();
    must(copies === 1, `${copies} copies`);
  },
};

const consuming = {
  "pull: durable, fetch, acknowledge": async (p) => {
    const subject = await p.stored(COUNT);
    const name = await p.made(p.stream, { filter_subject: subject });
    for (const message of await p.fetched(name, COUNT)) {
      must(message.subject === subject, "another subject");
      must(await message.ackAck(), "not acknowledged");
    }
  },
  "pull: durable, a wildcard as filter": async (p) => {
    const subject = await p.stored(COUNT);
    const name = await p.made(p.stream, { filter_subject: `${p.stream}.>` });
    await p.consumed(await p.js.consumers.get(p.stream, name), subject);
  },
  "pull: durable, no filter": async (p) => {
    const subject = await p.stored(COUNT);
    await p.consumed(await p.js.consumers.get(p.stream, await p.made(p.stream, {})), subject);
  },
  "pull: nothing there": async (p) => {
    await p.without(await p.made(p.stream, { filter_subject: p.subject() }), "found something");
  },
  "pull: an empty message among others": async (p) => {
    const subject = p.subject();
    for (const body of ["0", "", "2"]) await p.js.publish(subject, body);
    await p.shown(subject, "2");
    const consumer = await p.js.consumers.get(p.stream, await p.made(p.stream, { filter_subject: subject }));
    for (let tries = 0; tries < 50; tries++) {
      let count = 0;
      try {
        for await (const _ of await consumer.fetch({ max_messages: COUNT, expires: SOON })) count++;
      } catch (error) {
        if (reason(error) !== "no responders") throw error; // a consumer in another cluster, just made
        await pause(20);
        continue;
      }
      must(count === COUNT, "not all came");
      return;
    }
    throw new Differs("no responders");
  },
  "pull: ephemeral": async (p) => {
    const subject = await p.stored(COUNT);
    const made = await p.jsm.consumers.add(p.stream, { ack_policy: AckPolicy.Explicit, filter_subject: subject });
    await p.fetched(made.name, COUNT);
  },
  "pull: several filters": async (p) => {
    const subjects = [await p.stored(), await p.stored()];
    const name = await p.made(p.stream, { filter_subjects: subjects });
    await p.fetched(name, 2);
  },
  "negative acknowledgement": async (p) => {
    const name = await p.made(p.stream, { filter_subject: await p.stored() });
    (await p.fetched(name, 1))[0].nak();
    must((await p.fetched(name, 1))[0].info.deliveryCount === 2, "not delivered again");
  },
  terminate: async (p) => {
    const name = await p.made(p.stream, { filter_subject: await p.stored(), ack_wait: nanos(500) });
    (await p.fetched(name, 1))[0].term();
    await p.without(name, "delivered again");
  },
  "in progress": async (p) => {
    const name = await p.made(p.stream, { filter_subject: await p.stored() });
    const [message] = await p.fetched(name, 1);
    message.working();
    must(await message.ackAck(), "not acknowledged");
  },
  "bind to a consumer that is there, fetch, acknowledge": async (p) => {
    const name = await p.made(await p.physical(), { filter_subject: await p.stored(COUNT) });
    for (const message of await p.fetched(name, COUNT)) must(await message.ackAck(), "not acknowledged");
  },
  "push: durable": async (p) => {
    const subject = await p.stored(COUNT);
    await p.pushed(subject, p.inbox(), { filter_subject: subject });
  },
  "push: durable, no filter": async (p) => p.pushed(await p.stored(COUNT), p.inbox(), {}),
  "push: to a subject of the client's choice": async (p) => {
    const subject = await p.stored(COUNT);
    await p.pushed(subject, `mine.${p.stream}.${p.fresh()}`, { filter_subject: subject }, SOON);
  },
  "push: ephemeral": async (p) => {
    const subject = await p.stored(COUNT);
    const config = { ack_policy: AckPolicy.Explicit, filter_subject: subject, deliver_subject: p.inbox() };
    const { name } = await p.jsm.consumers.add(p.stream, config);
    await p.consumed(await p.js.consumers.getPushConsumer(p.stream, name), subject);
  },
  "push: queue group": async (p) => {
    const subject = await p.stored(COUNT);
    await p.pushed(subject, p.inbox(), { filter_subject: subject, deliver_group: "workers" });
  },
  "push: flow control": async (p) => {
    const subject = await p.stored(COUNT);
    await p.pushed(subject, p.inbox(), { filter_subject: subject, flow_control: true, idle_heartbeat: nanos(1_000) });
  },
  "ordered consumer": async (p) => {
    const subject = await p.stored(COUNT);
    const seen = [];
    for (let tries = 0; tries < 50 && seen.length === 0; tries++) {
      const consumer = await p.js.consumers.get(p.stream, { filter_subjects: [subject] });
      try {
        const messages = await consumer.fetch({ max_messages: COUNT, expires: 10_000 });
        for await (const message of messages) seen.push(message.string());
      } catch (error) {
        if (reason(error) !== "no responders") throw error; // a consumer in another cluster, just made
        await pause(20);
      }
    }
    must(seen.join() === "0,1,2", "out of order");
  },
  "consumer: info": async (p) => {
    const name = await p.made(await p.physical(), {});
    must((await p.jsm.consumers.info(p.stream, name)).name === name, "another name");
  },
  "consumer: list": async (p) => {
    const name = await p.made(await p.physical(), {});
    await eventually(async () => {
      let found = false; // servers that take too long to answer are left out
      for await (const one of p.jsm.consumers.list(p.stream)) found ||= one.name === name;
      return found;
    }, "not listed");
  },
  "consumer: pause and resume": async (p) => {
    const name = await p.made(await p.physical(), {});
    const until = new Date(Date.now() + 60_000);
    must((await known(() => p.jsm.consumers.pause(p.stream, name, until))).paused, "not paused");
    must(!(await p.jsm.consumers.resume(p.stream, name)).paused, "not resumed");
  },
  "consumer: update": async (p) => {
    const name = await p.made(p.stream, {});
    const changed = await p.jsm.consumers.update(p.stream, name, { description: "changed" });
    must(changed.config.description === "changed", "not changed");
  },
  "consumer: reset": async (p) => {
    const name = await p.made(await p.physical(), { filter_subject: await p.stored(COUNT) });
    for (const message of await p.fetched(name, COUNT)) must(await message.ackAck(), "not acknowledged");
    await p.jsm.consumers.reset(p.stream, name, 1);
    await p.fetched(name, COUNT);
  },
  "consumer: delete": async (p) => {
    const name = await p.made(await p.physical(), {});
    must(await known(() => p.jsm.consumers.delete(p.stream, name)), "not deleted");
  },
};

const looking = {
  "stream: info": async (p) => must((await p.jsm.streams.info(p.stream)).state.messages > 0, "no messages"),
  "stream: list": async (p) => {
    let found = false;
    for await (const one of p.jsm.streams.list()) found ||= one.config.name === p.stream;
    must(found, "not listed by its name");
  },
  "stream: names": async (p) => {
    let found = false;
    for await (const one of p.jsm.streams.names()) found ||= one === p.stream;
    must(found, "not listed by its name");
  },
  "stream: name by subject": async (p) =>
    must((await p.jsm.streams.find(p.subject())) === p.stream, "another name"),
  "stream: name by subject, where core subscribers hear it": async (p) =>
    must((await p.jsm.streams.find(`${p.heard}.x`)) === p.heard, "another name"),
  "account: info": (p) => p.jsm.getAccountInfo(),
  "get by sequence": async (p) => {
    const subject = await p.stored();
    const last = await p.jsm.streams.getMessage(p.stream, { last_by_subj: subject });
    must((await p.jsm.streams.getMessage(p.stream, { seq: last.seq })).subject === subject, "another subject");
  },
  "get the last of a subject": async (p) => {
    const subject = await p.stored();
    const found = async () => (await p.jsm.streams.getMessage(p.stream, { last_by_subj: subject }))?.subject === subject;
    await eventually(found, "not found"); // where it is answered by another copy than direct gets are
  },
  "direct get the last of a subject": async (p) => {
    const subject = await p.stored(COUNT);
    const found = await p.jsm.direct.getMessage(p.stream, { last_by_subj: subject });
    must(found.subject === subject && found.string() === String(COUNT - 1), "another message");
  },
  "direct get by sequence": async (p) => {
    const subject = await p.stored();
    const last = await p.jsm.direct.getMessage(p.stream, { last_by_subj: subject });
    must((await p.jsm.direct.getMessage(p.stream, { seq: last.seq })).subject === subject, "another subject");
  },
  "direct get the next of a subject": async (p) => {
    const subject = await p.stored();
    const found = await p.jsm.direct.getMessage(p.stream, { seq: 1, next_by_subj: subject });
    must(found.subject === subject, "another subject");
  },
  "direct get, a batch": async (p) => {
    const subject = await p.stored(COUNT);
    let seen = 0;
    for await (const _ of await p.jsm.direct.getBatch(p.stream, { seq: 1, batch: COUNT, next_by_subj: subject })) seen++;
    must(seen === COUNT, `${seen} of ${COUNT} messages`);
  },
  "direct get, the last of several subjects": async (p) => {
    const subjects = [await p.stored(), await p.stored()];
    let seen = 0;
    for await (const _ of await p.jsm.direct.getLastMessagesFor(p.stream, { multi_last: subjects })) seen++;
    must(seen === 2, `${seen} of 2 messages`);
  },
};

const changing = {
  "delete a message, everywhere": async (p) => {
    const subject = await p.stored();
    const last = await p.jsm.streams.getMessage(p.stream, { last_by_subj: subject });
    must(await p.jsm.streams.deleteMessage(p.stream, last.seq), "not deleted");
    const gone = async () => (await p.jsm.direct.getMessage(p.stream, { last_by_subj: subject })) === null;
    await eventually(gone, "copies keep it", SOON);
  },
  "purge a subject": async (p) => p.jsm.streams.purge(p.stream, { filter: await p.stored() }),
};

// The key that other regions look at: not that of the other client, which has tried to create it.
const seeded = (region) => `seed-${region}`;

const holds = (kv, key, value) =>
  eventually(async () => {
    const entry = await kv.get(key);
    return value === null ? !entry || entry.operation !== "PUT" : entry?.string() === value;
  }, "not read");

const keyValue = {
  "put, get": async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
  },
  "get what another region put": (p) => holds(p.kv, seeded(p.others[0]), "seed"),
  "get by the revision of a put": async (p) => {
    const key = p.fresh();
    const revision = await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    must((await p.kv.get(key, { revision }))?.string() === "1", "another key, or none");
  },
  "create, and not twice": async (p) => {
    const key = p.fresh();
    await p.kv.create(key, "1");
    await holds(p.kv, key, "1");
    await refused(10071, p.kv.create(key, "2"), "created twice");
  },
  "create what was deleted": async (p) => {
    const key = p.fresh();
    await p.kv.create(key, "1");
    await holds(p.kv, key, "1");
    await p.kv.delete(key);
    await holds(p.kv, key, null);
    await p.kv.create(key, "2");
    await holds(p.kv, key, "2");
  },
  "create what another region has is refused": async (p) => {
    const key = seeded(p.others[0]);
    await holds(p.kv, key, "seed");
    await refused(10071, p.kv.create(key, "seed"), "created twice");
  },
  "update with the revision of a put": async (p) => {
    const key = p.fresh();
    await p.kv.update(key, "2", await p.kv.put(key, "1"));
    await holds(p.kv, key, "2");
  },
  "update with the revision of a get": async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    await p.kv.update(key, "2", (await p.kv.get(key)).revision);
  },
  delete: async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    await p.kv.delete(key);
    await holds(p.kv, key, null);
  },
  purge: async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    await p.kv.purge(key);
    await holds(p.kv, key, null);
  },
  "purge what was deleted": async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    await p.kv.delete(key);
    await holds(p.kv, key, null);
    await p.kv.purgeDeletes(-1_000);
    const last = { last_by_subj: `$KV.${p.stream}.${key}` };
    const gone = async () => (await p.jsm.direct.getMessage(`KV_${p.stream}`, last)) === null;
    await eventually(gone, "copies keep it", SOON);
  },
  keys: async (p) => {
    const key = p.fresh();
    await p.kv.put(key, "1");
    await holds(p.kv, key, "1");
    let found = false;
    for await (const one of await p.kv.keys()) found ||= one === key;
    must(found, "not listed");
  },
  watch: async (p) => {
    const key = p.fresh();
    const watched = await p.kv.watch({ key });
    await p.kv.put(key, "1");
    const late = setTimeout(() => watched.stop(), 10_000);
    let seen = false;
    for await (const entry of watched) {
      seen = entry.string() === "1";
      break;
    }
    clearTimeout(late);
    watched.stop();
    must(seen, "not seen");
  },
  "watch all keys": async (p) => {
    const key = p.fresh();
    const watched = await p.kv.watch();
    await p.kv.put(key, "1");
    const late = setTimeout(() => watched.stop(), 10_000);
    let seen = false;
    for await (const entry of watched) {
      if ((seen = entry.key === key)) break;
    }
    clearTimeout(late);
    watched.stop();
    must(seen, "not seen");
  },
  history: async (p) => {
    const key = p.fresh();
    for (const value of ["1", "2"]) await p.kv.put(key, value);
    await holds(p.kv, key, "2");
    const seen = [];
    for await (const entry of await p.kv.history({ key })) seen.push(entry.string());
    must(seen.join() === "1,2", "not both");
  },
  status: async (p) => must((await p.kv.status()).values > 0, "no values"),
};

async function object(p) {
  const name = p.fresh();
  await p.objects.putBlob({ name }, new Uint8Array(LARGE));
  await eventually(async () => (await p.objects.info(name))?.size === LARGE, "not read");
  return name;
}

const objects = {
  put: (p) => p.objects.putBlob({ name: p.fresh() }, new Uint8Array(LARGE)),
  get: async (p) => must((await p.objects.getBlob(await object(p)))?.length === LARGE, "other bytes"),
  info: async (p) => {
    await object(p);
  },
  list: async (p) => {
    const name = await object(p);
    const holdsIt = async () => (await p.objects.list()).some((one) => one.name === name);
    await eventually(holdsIt, "not listed", SOON);
  },
  status: async (p) => {
    await object(p);
    must((await p.objects.status()).size > 0, "no bytes");
  },
  "update what is said of it": async (p) => {
    const name = await object(p);
    await p.objects.update(name, { name, description: "changed" });
    await eventually(async () => (await p.objects.info(name))?.description === "changed", "not changed");
  },
  watch: async (p) => {
    const watched = await p.objects.watch({ includeHistory: false });
    const name = p.fresh();
    await p.objects.putBlob({ name }, new Uint8Array(1));
    const late = setTimeout(() => watched.stop(), 10_000);
    let seen = false;
    for await (const one of watched) {
      if ((seen = one?.name === name)) break;
    }
    clearTimeout(late);
    watched.stop();
    must(seen, "not seen");
  },
  delete: async (p) => {
    const name = await object(p);
    await p.objects.delete(name);
    await eventually(async () => (await p.objects.info(name))?.deleted !== false, "still there");
  },
};

const limited = (promise) =>
  Promise.race([promise, pause(LIMIT).then(() => Promise.reject(new Differs("did not end")))]);

async function all(place, parts) {
  const found = [];
  for (const [group, named] of Object.entries(parts)) {
    for (const [name, operation] of Object.entries(named)) {
      if (asked.operations.length > 0 && !asked.operations.includes(name)) continue;
      let outcome = "works";
      try {
        await limited(Promise.resolve(operation(place)));
      } catch (error) {
        outcome = reason(error);
      }
      found.push([place.stream, place.region, group, name, outcome]);
    }
  }
  return found;
}

async function opened(said) {
  const login = said.creds
    ? { authenticator: credsAuthenticator(readFileSync(said.creds)) }
    : { user: said.user, pass: said.password };
  const nc = await connect({ servers: said.urls, ...login, timeout: 20_000 });
  const options = { timeout: 10_000 };
  const place = new Place(said, nc, jetstream(nc, options), await jetstreamManager(nc, options));
  place.kv = await new Kvm(place.js).open(said.stream);
  place.objects = await new Objm(place.js).open(said.stream);
  await place.kv.put(seeded(said.region), "seed");
  await place.stored(3);
  return place;
}

const asked = JSON.parse(readFileSync(0, "utf8"));
const places = await Promise.all(asked.places.map(opened));
const cells = await Promise.all(
  places.flatMap((place) => [
    all(place, { publishing, consuming, looking, changing }),
    all(place, { "key-value": keyValue, objects }),
  ]),
);
console.log(JSON.stringify(cells.flat()));
await Promise.all(places.map((place) => place.nc.close()));
