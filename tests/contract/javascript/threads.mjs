// Sections 4 and 5: threads, their state and their history.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, newThread, rejection } from "./agent.mjs";

/** Run the graph `steps` once on a new thread and return the id of the thread. */
async function runSteps(payload) {
  const thread = await newThread(payload);
  await client.runs.wait(thread, "steps", { input: { notes: ["start"] } });
  return thread;
}

const mark = () => crypto.randomUUID();

test("a new thread is idle and has no values", async () => {
  const thread = await client.threads.create({ metadata: { of: "ann" } });

  assert.deepEqual(
    [thread.status, thread.values, thread.metadata],
    ["idle", null, { of: "ann" }],
  );
});

test("a taken id is a conflict, or returns the existing thread on request", async () => {
  const threadId = mark();
  await client.threads.create({ threadId, metadata: { first: true } });

  const error = await rejection(client.threads.create({ threadId }));
  const second = await client.threads.create({
    threadId,
    ifExists: "do_nothing",
    metadata: { first: false },
  });

  assert.equal(error.status, 409);
  assert.deepEqual(second.metadata, { first: true });
});

test("a ttl in minutes is stored and included on request", async () => {
  const thread = await newThread({ ttl: 90 });

  const plain = await client.threads.get(thread);
  const { ttl } = await client.threads.get(thread, { include: ["ttl"] });

  assert.ok(!("ttl" in plain));
  assert.deepEqual([ttl.strategy, ttl.ttl_minutes], ["delete", 90]);
  assert.ok(Math.abs(new Date(ttl.expires_at) - Date.now() - 90 * 60_000) < 60_000);
});

test("metadata is merged", async () => {
  const thread = await newThread({ metadata: { a: 1, b: 1 } });

  const { metadata } = await client.threads.update(thread, { metadata: { b: 2 } });

  assert.deepEqual(metadata, { a: 1, b: 2 });
});

test("an update returns nothing on request", async () => {
  const thread = await newThread();

  const result = await client.threads.update(thread, {
    metadata: { a: 1 },
    returnMinimal: true,
  });

  assert.equal(result, undefined);
  assert.deepEqual((await client.threads.get(thread)).metadata, { a: 1 });
});

test("a thread is created with supersteps", async () => {
  const thread = await newThread({
    graphId: "steps",
    supersteps: [
      { updates: [{ values: { notes: ["start"] }, asNode: "__input__" }] },
      { updates: [{ values: { notes: ["start"] }, asNode: "__start__" }] },
      { updates: [{ values: { notes: ["planned before"] }, asNode: "plan" }] },
    ],
  });

  const { values, next } = await client.threads.getState(thread);

  assert.deepEqual(values.notes, ["start", "planned before"]);
  assert.deepEqual(next, ["write"]);
});

test("threads are searched by metadata, values and status", async () => {
  const team = mark();
  const thread = await runSteps({ metadata: { team } });
  await newThread({ metadata: { team } });

  const byValues = await client.threads.search({ metadata: { team }, values: { count: 3 } });
  const byStatus = await client.threads.search({ metadata: { team }, status: "busy" });

  assert.deepEqual(byValues.map(({ thread_id }) => thread_id), [thread]);
  assert.deepEqual(byStatus, []);
  assert.equal(await client.threads.count({ metadata: { team } }), 2);
  assert.equal(await client.threads.count({ metadata: { team }, values: { count: 3 } }), 1);
});

test("a search is sorted and limited, and selects and extracts fields", async () => {
  const team = mark();
  const threads = [await runSteps({ metadata: { team } }), await runSteps({ metadata: { team } })];

  const page = await client.threads.search({
    metadata: { team },
    sortBy: "created_at",
    sortOrder: "asc",
    limit: 1,
    offset: 1,
    select: ["thread_id"],
    extract: { last: "values.notes[-1]", team: "metadata.team" },
  });

  assert.deepEqual(page, [{ thread_id: threads[1], extracted: { last: "review", team } }]);
});

test("threads are searched by ids", async () => {
  const thread = await newThread();

  const threads = await client.threads.search({ ids: [thread, mark()] });

  assert.deepEqual(threads.map(({ thread_id }) => thread_id), [thread]);
});

test("a copy has the state and the history, not the runs", async () => {
  const thread = await runSteps();

  const copy = await client.threads.copy(thread);

  const [before, after] = await Promise.all(
    [thread, copy.thread_id].map((id) => client.threads.getHistory(id)),
  );
  assert.notEqual(copy.thread_id, thread);
  assert.deepEqual(
    after.map(({ checkpoint, values }) => [checkpoint.checkpoint_id, values]),
    before.map(({ checkpoint, values }) => [checkpoint.checkpoint_id, values]),
  );
  assert.deepEqual(await client.runs.list(copy.thread_id), []);
});

test("pruning deletes existing threads", async () => {
  const thread = await runSteps();

  const { pruned_count } = await client.threads.prune([thread, mark()]);

  assert.equal(pruned_count, 1);
  assert.equal((await rejection(client.threads.get(thread))).status, 404);
});

test("pruning keeps the latest state on request", async () => {
  const thread = await runSteps();

  await client.threads.prune([thread], { strategy: "keep_latest" });

  const history = await client.threads.getHistory(thread);
  assert.equal(history.length, 1);
  assert.equal(history[0].values.count, 3);
});

test("a deleted thread is 404", async () => {
  const thread = await runSteps();

  await client.threads.delete(thread);

  assert.equal((await rejection(client.threads.get(thread))).status, 404);
  assert.equal((await rejection(client.threads.delete(thread))).status, 404);
});

test("the state of a thread without a run is empty", async () => {
  const state = await client.threads.getState(await newThread());

  assert.deepEqual(
    [state.values, state.next, state.tasks, state.checkpoint],
    [{}, [], [], null],
  );
});

test("a state is read by checkpoint id and by checkpoint object", async () => {
  const thread = await runSteps();
  const [, { checkpoint, values }] = await client.threads.getHistory(thread);

  const byId = await client.threads.getState(thread, checkpoint.checkpoint_id);
  const byReference = await client.threads.getState(thread, checkpoint);

  assert.deepEqual(byId.values, values);
  assert.deepEqual(byReference.values, values);
  assert.deepEqual(byReference.checkpoint, checkpoint);
});

test("an update as a node returns its checkpoint", async () => {
  const thread = await runSteps();

  const { checkpoint } = await client.threads.updateState(thread, {
    values: { notes: ["by hand"] },
    asNode: "write",
  });

  const state = await client.threads.getState(thread);
  assert.equal(state.checkpoint.checkpoint_id, checkpoint.checkpoint_id);
  assert.deepEqual(state.values.notes.slice(-1), ["by hand"]);
  assert.deepEqual(state.next, ["review"]);
  assert.equal((await client.threads.get(thread)).status, "interrupted");
});

test("an update of an old checkpoint creates a branch that becomes the current state", async () => {
  const thread = await runSteps();
  const history = await client.threads.getHistory(thread);
  const planned = history.find(({ next }) => next[0] === "write");

  await client.threads.updateState(thread, {
    values: { notes: ["otherwise"] },
    asNode: "write",
    checkpointId: planned.checkpoint.checkpoint_id,
  });

  const notes = ["start", "plan", "otherwise"];
  assert.deepEqual((await client.threads.getState(thread)).values.notes, notes);
  assert.deepEqual((await client.threads.get(thread)).values.notes, notes);
});

test("an update as an unknown node is rejected", async () => {
  const thread = await runSteps();

  const error = await rejection(client.threads.updateState(thread, { values: {}, asNode: "missing" }));

  assert.equal(error.status, 400);
});

test("history is newest first and continues before a checkpoint", async () => {
  const thread = await runSteps();
  const whole = await client.threads.getHistory(thread);

  const rest = await client.threads.getHistory(thread, {
    limit: 2,
    before: { configurable: { checkpoint_id: whole[1].checkpoint.checkpoint_id } },
  });

  assert.deepEqual(whole.map(({ metadata }) => metadata.step), [3, 2, 1, 0, -1]);
  assert.deepEqual(rest.map(({ metadata }) => metadata.step), [1, 0]);
});

test("history is filtered by the metadata of its checkpoints", async () => {
  const thread = await runSteps();

  const inputs = await client.threads.getHistory(thread, { metadata: { source: "input" } });

  assert.deepEqual(inputs.map(({ metadata }) => metadata.step), [-1]);
});

test("a subgraph has its own history", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "nested", { input: { topic: "cats", ask: true } });
  const [task] = (await client.threads.getState(thread)).tasks;

  const history = await client.threads.getHistory(thread, { checkpoint: task.checkpoint });

  assert.deepEqual(history[0].values.outline, ["cats"]);
  assert.deepEqual(history[0].next, ["search"]);
});
