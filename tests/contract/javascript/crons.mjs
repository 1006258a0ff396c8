// Section 11.1: scheduled runs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, newThread, rejection, waitUntil } from "./agent.mjs";

const YEARLY = "0 12 1 1 *";

test("a new cron has its next run date", async (t) => {
  const cron = await client.crons.create("steps", {
    schedule: YEARLY,
    timezone: "Europe/Prague",
    input: { notes: ["scheduled"] },
    metadata: { of: "ann" },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const next = new Date(cron.next_run_date);
  assert.equal(cron.thread_id, null);
  assert.deepEqual([cron.enabled, cron.timezone], [true, "Europe/Prague"]);
  assert.deepEqual([next.getUTCMonth(), next.getUTCDate(), next.getUTCHours()], [0, 1, 11]);
  assert.deepEqual(cron.payload.input, { notes: ["scheduled"] });
});

test("a cron on a thread belongs to it", async (t) => {
  const thread = await newThread();
  const cron = await client.crons.createForThread(thread, "steps", { schedule: YEARLY });
  t.after(() => client.crons.delete(cron.cron_id));

  const crons = await client.crons.search({ threadId: thread });

  assert.equal(cron.thread_id, thread);
  assert.deepEqual(crons.map(({ cron_id }) => cron_id), [cron.cron_id]);
  assert.equal(await client.crons.count({ threadId: thread }), 1);
});

test("crons are searched by metadata and enabled state", async (t) => {
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

test("an update changes the given fields and the next run date", async (t) => {
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

test("a deleted cron is 404", async () => {
  const cron = await client.crons.create("steps", { schedule: YEARLY });

  await client.crons.delete(cron.cron_id);

  assert.equal((await rejection(client.crons.delete(cron.cron_id))).status, 404);
});

test("a cron of seconds creates a run on its thread with the cron id in the config", async (t) => {
  const thread = await newThread();
  const cron = await client.crons.createForThread(thread, "steps", {
    schedule: "* * * * * */1",
    input: { notes: ["tick"] },
    metadata: { tick: true },
  });
  t.after(() => client.crons.delete(cron.cron_id));

  const run = await waitUntil(
    async () => (await client.runs.list(thread)).find(({ status }) => status === "success"),
    "a run",
  );

  const { values } = await client.threads.getState(thread);
  assert.equal(run.metadata.tick, true);
  assert.equal(values.seen.cron_id, cron.cron_id);
});

test("a cron without a thread creates one for each run", async (t) => {
  const team = crypto.randomUUID();
  const cron = await client.crons.create("steps", {
    schedule: "* * * * * */1",
    input: {},
    metadata: { team },
    onRunCompleted: "keep",
  });
  t.after(() => client.crons.delete(cron.cron_id).catch(() => {}));

  const threads = await waitUntil(async () => {
    const rows = await client.threads.search({ metadata: { team } });
    return rows.length > 1 && rows;
  }, "a second run");
  await client.crons.delete(cron.cron_id);

  assert.equal(new Set(threads.map(({ thread_id }) => thread_id)).size, threads.length);
});

test("an invalid schedule or time zone is rejected", async () => {
  const schedule = await rejection(client.crons.create("steps", { schedule: "soon" }));
  const zone = await rejection(
    client.crons.create("steps", { schedule: YEARLY, timezone: "Middle/Earth" }),
  );

  assert.deepEqual([schedule.status, zone.status], [422, 422]);
});

test("a cron on a missing thread or assistant is 404", async () => {
  const unknown = crypto.randomUUID();

  const thread = await rejection(
    client.crons.createForThread(unknown, "steps", { schedule: YEARLY }),
  );
  const assistant = await rejection(client.crons.create(unknown, { schedule: YEARLY }));

  assert.deepEqual([thread.status, assistant.status], [404, 404]);
});
