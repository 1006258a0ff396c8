// Section 11.1: runs that start by the clock.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, newThread, refusal, until } from "./agent.mjs";

const YEARLY = "0 12 1 1 *";

test("a cron is made and shows when it fires next", async (t) => {
  const cron = await client.crons.create("steps", {
    schedule: YEARLY,
    timezone: "Europe/Prague",
    input: { notes: ["by the clock"] },
    metadata: { of: "ann" },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const next = new Date(cron.next_run_date);
  assert.equal(cron.thread_id, null);
  assert.deepEqual([cron.enabled, cron.timezone], [true, "Europe/Prague"]);
  assert.deepEqual([next.getUTCMonth(), next.getUTCDate(), next.getUTCHours()], [0, 1, 11]);
  assert.deepEqual(cron.payload.input, { notes: ["by the clock"] });
});

test("a cron on a thread belongs to it", async (t) => {
  const thread = await newThread();
  const cron = await client.crons.createForThread(thread, "steps", { schedule: YEARLY });
  t.after(() => client.crons.delete(cron.cron_id));

  const found = await client.crons.search({ threadId: thread });

  assert.equal(cron.thread_id, thread);
  assert.deepEqual(found.map(({ cron_id }) => cron_id), [cron.cron_id]);
  assert.equal(await client.crons.count({ threadId: thread }), 1);
});

test("crons are found by metadata and by whether they are on", async (t) => {
  const team = crypto.randomUUID();
  const cron = await client.crons.create("steps", {
    schedule: YEARLY,
    enabled: false,
    metadata: { team },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const off = await client.crons.search({ metadata: { team }, enabled: false });
  const on = await client.crons.search({ metadata: { team }, enabled: true });

  assert.deepEqual(off.map(({ cron_id }) => cron_id), [cron.cron_id]);
  assert.deepEqual(on, []);
});

test("an update changes what it names and the next firing", async (t) => {
  const cron = await client.crons.create("steps", {
    schedule: YEARLY,
    endTime: "2100-01-01T00:00:00Z",
    metadata: { a: 1 },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const changed = await client.crons.update(cron.cron_id, {
    schedule: "0 12 1 6 *",
    endTime: null,
    metadata: { b: 2 },
  });

  assert.equal(new Date(changed.next_run_date).getUTCMonth(), 5);
  assert.equal(changed.end_time, null);
  assert.deepEqual(changed.metadata, { a: 1, b: 2 });
});

test("a deleted cron is gone", async () => {
  const cron = await client.crons.create("steps", { schedule: YEARLY });

  await client.crons.delete(cron.cron_id);

  assert.equal((await refusal(client.crons.delete(cron.cron_id))).status, 404);
});

test("a cron of seconds fires, on its thread, with its id in the graph", async (t) => {
  const thread = await newThread();
  const cron = await client.crons.createForThread(thread, "steps", {
    schedule: "* * * * * */1",
    input: { notes: ["tick"] },
    metadata: { tick: true },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const run = await until(
    async () => (await client.runs.list(thread)).find(({ status }) => status === "success"),
    "a firing",
  );

  const { values } = await client.threads.getState(thread);
  assert.equal(run.metadata.tick, true);
  assert.equal(values.seen.cron_id, cron.cron_id);
});

test("a cron without a thread makes one for each firing", async (t) => {
  const team = crypto.randomUUID();
  const cron = await client.crons.create("steps", {
    schedule: "* * * * * */1",
    input: {},
    metadata: { team },
    onRunCompleted: "keep",
  });
  t.after(() => client.crons.delete(cron.cron_id).catch(() => {}));

  const threads = await until(async () => {
    const found = await client.threads.search({ metadata: { team } });
    return found.length > 1 && found;
  }, "a second firing");
  await client.crons.delete(cron.cron_id);

  assert.equal(new Set(threads.map(({ thread_id }) => thread_id)).size, threads.length);
});

test("a schedule and a time zone that mean nothing are refused", async () => {
  const schedule = await refusal(client.crons.create("steps", { schedule: "soon" }));
  const zone = await refusal(
    client.crons.create("steps", { schedule: YEARLY, timezone: "Middle/Earth" }),
  );

  assert.deepEqual([schedule.status, zone.status], [422, 422]);
});

test("a cron on a thread or an assistant that is not there is refused", async () => {
  const unknown = crypto.randomUUID();

  const thread = await refusal(
    client.crons.createForThread(unknown, "steps", { schedule: YEARLY }),
  );
  const assistant = await refusal(client.crons.create(unknown, { schedule: YEARLY }));

  assert.deepEqual([thread.status, assistant.status], [404, 404]);
});
