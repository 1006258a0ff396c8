// Sections 6 and 7: creating, waiting, double texting, cancelling.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, connect, newThread, dataOf, rejection, startSlow, waitUntil } from "./agent.mjs";

const status = async (thread, run) => (await client.runs.get(thread, run)).status;

test("a run is created pending, and join waits for its values", async () => {
  const thread = await newThread();

  const run = await client.runs.create(thread, "steps", { input: {} });

  assert.equal(run.status, "pending");
  assert.equal((await client.runs.join(thread, run.run_id)).count, 3);
  assert.equal(await status(thread, run.run_id), "success");
});

test("creating and waiting call onRunCreated with the run", async () => {
  const thread = await newThread();
  const created = [];
  const onRunCreated = (run) => created.push(run);

  await client.runs.create(thread, "steps", { input: {}, onRunCreated });
  await client.runs.wait(thread, "steps", { input: {}, onRunCreated });

  const runs = await client.runs.list(thread);
  assert.deepEqual(
    created,
    runs.toReversed().map(({ run_id }) => ({ run_id, thread_id: thread })),
  );
});

test("a failed run raises an error, or returns it on request", async () => {
  const failing = { input: { fail: "plan" } };

  const error = await rejection(client.runs.wait(await newThread(), "steps", failing));
  const result = await client.runs.wait(await newThread(), "steps", {
    ...failing,
    raiseError: false,
  });

  assert.equal(error.message, "ValueError: no such city");
  assert.deepEqual(result, { __error__: { error: "ValueError", message: "no such city" } });
});

test("the error of a run names the class of a custom exception", async () => {
  const error = await rejection(client.runs.wait(null, "faults", { input: { kind: "own" } }));

  assert.match(error.message, /^OutOfPaper: /);
});

test("an agent that calls exit fails its run, not the platform", async () => {
  const error = await rejection(client.runs.wait(null, "faults", { input: { kind: "exit" } }));

  assert.match(error.message, /^SystemExit: /);
  assert.equal((await client.runs.wait(null, "faults", { input: {} })).counted, 1);
});

test("runs are listed by status and with the selected fields", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "steps", { input: {} });
  await client.runs.wait(thread, "steps", { input: { fail: "plan" }, raiseError: false });

  const failed = await client.runs.list(thread, { status: "error", select: ["status", "thread_id"] });

  assert.deepEqual(failed, [{ status: "error", thread_id: thread }]);
  assert.equal((await client.runs.list(thread, { limit: 1, offset: 1 }))[0].status, "success");
});

test("a deleted run is 404", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "steps", { input: {} });
  await client.runs.join(thread, run.run_id);

  await client.runs.delete(thread, run.run_id);

  assert.equal((await rejection(client.runs.get(thread, run.run_id))).status, 404);
});

test("a batch creates a run for each entry", async () => {
  const runs = await client.runs.createBatch([
    { assistantId: "steps", input: { notes: ["a"] }, onCompletion: "keep" },
    { assistantId: "steps", input: { notes: ["b"] } },
  ]);

  assert.equal(runs.length, 2);
  assert.deepEqual(
    runs.map((run) => run.kwargs.input.notes),
    [["a"], ["b"]],
  );
  await waitUntil(async () => {
    const status = await client.threads.get(runs[1].thread_id).catch((error) => error.status);
    return status === 404;
  }, "the deletion of the thread");
});

test("a busy thread rejects a run with the strategy reject", async () => {
  const thread = await newThread();
  await startSlow(thread);

  const error = await rejection(
    client.runs.create(thread, "slow", { input: {}, multitaskStrategy: "reject" }),
  );

  assert.equal(error.status, 409);
  assert.match(error.message, /already running/);
  assert.equal((await client.runs.list(thread)).length, 1);
});

test("a busy thread queues runs in order by default", async () => {
  const thread = await newThread();
  const runs = [];
  for (const note of ["a", "b", "c"]) {
    runs.push(await client.runs.create(thread, "steps", { input: { notes: [note] } }));
  }

  const { notes } = await client.runs.join(thread, runs[2].run_id);

  assert.deepEqual(
    notes.filter((note) => note.length === 1),
    ["a", "b", "c"],
  );
});

test("interrupt stops running and queued runs and keeps finished steps", async () => {
  const thread = await newThread();
  const first = await startSlow(thread, { input: { steps: 20, seconds: 1 } });
  const second = await client.runs.create(thread, "slow", { input: {} });
  await waitUntil(async () => (await client.threads.getState(thread)).values.done >= 1, "a step");

  const { done } = await client.runs.wait(thread, "slow", {
    input: { seconds: 0, steps: 1 },
    multitaskStrategy: "interrupt",
  });

  assert.equal(await status(thread, first.run_id), "interrupted");
  assert.equal(await status(thread, second.run_id), "interrupted");
  assert.ok(done >= 2);
});

test("rollback deletes the running run", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "slow", { input: {} });
  const first = await startSlow(thread);

  const { done } = await client.runs.wait(thread, "slow", {
    input: { seconds: 0, steps: 1 },
    multitaskStrategy: "rollback",
  });

  assert.equal(done, 2);
  assert.equal((await rejection(client.runs.get(thread, first.run_id))).status, 404);
});

test("a cancelled run is interrupted when the call returns", async () => {
  const thread = await newThread();
  const run = await startSlow(thread);

  const result = await client.runs.cancel(thread, run.run_id, true);

  assert.deepEqual(result, {});
  assert.equal(await status(thread, run.run_id), "interrupted");
  assert.equal((await client.threads.get(thread)).status, "interrupted");
});

test("cancelling without waiting responds at once", async () => {
  const thread = await newThread();
  const run = await startSlow(thread);

  assert.equal(await client.runs.cancel(thread, run.run_id), undefined);

  await waitUntil(async () => (await status(thread, run.run_id)) === "interrupted", "the end");
});

test("cancelling with rollback deletes the run", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "slow", { input: {} });
  const run = await startSlow(thread);

  await client.runs.cancel(thread, run.run_id, true, "rollback");

  assert.equal((await rejection(client.runs.get(thread, run.run_id))).status, 404);
  const { status: after, values } = await client.threads.get(thread);
  assert.deepEqual([after, values.done], ["idle", 1]);
});

test("a cancelled run is continued without input", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "pace", {
    input: { notes: ["start"], sleep: 60, slow: "write" },
  });
  await waitUntil(
    async () => (await client.threads.getState(thread)).next[0] === "write",
    "the slow step",
  );
  await client.runs.cancel(thread, run.run_id, true);
  await client.threads.updateState(thread, { values: { sleep: 0 }, asNode: "plan" });

  const { notes } = await client.runs.wait(thread, "pace", { input: null });

  assert.deepEqual(notes, ["start", "plan", "write", "review"]);
});

test("several runs are cancelled together", async () => {
  const thread = await newThread();
  const runs = [await startSlow(thread), await client.runs.create(thread, "slow", { input: {} })];

  await client.runs.cancelMany({ threadId: thread, runIds: runs.map(({ run_id }) => run_id) });

  for (const { run_id } of runs) {
    await waitUntil(async () => (await status(thread, run_id)) === "interrupted", "the end");
  }
});

test("a finished run cannot be cancelled", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "steps", { input: {} });
  await client.runs.join(thread, run.run_id);

  assert.equal((await rejection(client.runs.cancel(thread, run.run_id))).status, 404);
});

test("closing a stream cancels its run on request", async () => {
  const thread = await newThread();
  const controller = new AbortController();
  const stream = client.runs.stream(thread, "slow", {
    input: { seconds: 30 },
    streamMode: ["custom"],
    onDisconnect: "cancel",
    signal: controller.signal,
  });
  await stream.next();
  await stream.next();

  controller.abort();

  await collect(stream).catch(() => {});
  await waitUntil(
    async () => (await client.runs.list(thread))[0].status === "interrupted",
    "the cancellation",
  );
});

test("closing a stream continues its run by default", async () => {
  const thread = await newThread();
  const controller = new AbortController();
  const stream = client.runs.stream(thread, "slow", {
    input: { seconds: 0.5 },
    streamMode: ["custom"],
    signal: controller.signal,
  });
  const { value } = await stream.next();
  await stream.next();

  controller.abort();

  await collect(stream).catch(() => {});
  assert.equal((await client.runs.join(thread, value.data.run_id)).done, 1);
});

test("aborting a wait cancels the run on request", async () => {
  const thread = await newThread();
  const controller = new AbortController();
  const waiting = client.runs.wait(thread, "slow", {
    input: { seconds: 30 },
    onDisconnect: "cancel",
    signal: controller.signal,
  });
  await waitUntil(async () => (await client.runs.list(thread))[0]?.status === "running", "the start");

  controller.abort();

  assert.match(String(await rejection(waiting)), /Abort/);
  await waitUntil(
    async () => (await client.runs.list(thread))[0].status === "interrupted",
    "the cancellation",
  );
});

test("a delayed run keeps its thread busy until it starts", async () => {
  const [thread, late] = [await newThread(), await newThread()];
  const run = await client.runs.create(thread, "steps", { input: {}, afterSeconds: 1 });
  await client.runs.create(late, "steps", { input: {}, afterSeconds: 3600 });

  await client.runs.join(thread, run.run_id);

  assert.equal((await client.threads.get(thread)).status, "idle");
  assert.equal((await client.threads.get(late)).status, "busy");
  const { created_at, updated_at } = await client.runs.get(thread, run.run_id);
  assert.ok(new Date(updated_at) >= new Date(created_at));
});

test("a missing thread is created for a run on request", async () => {
  const thread = crypto.randomUUID();
  const missing = await rejection(client.runs.wait(thread, "steps", { input: {} }));

  const { count } = await client.runs.wait(thread, "steps", {
    input: {},
    ifNotExists: "create",
  });

  assert.equal(missing.status, 404);
  assert.equal(count, 3);
  assert.equal((await client.threads.get(thread)).thread_id, thread);
});

test("a stateless run keeps its thread on request", async () => {
  const run = await client.runs.create(null, "steps", { input: {}, onCompletion: "keep" });
  await client.runs.join(run.thread_id, run.run_id);

  assert.equal((await client.threads.getState(run.thread_id)).values.count, 3);
});

test("metadata of assistant, thread and request are merged into the run", async () => {
  const thread = await newThread({ metadata: { of: "thread", kept: true } });

  const run = await client.runs.create(thread, "steps", {
    input: {},
    metadata: { of: "request" },
  });

  const { of: source, kept, graph_id, assistant_id, created_by } = run.metadata;
  assert.deepEqual(
    [source, kept, graph_id, assistant_id, created_by],
    ["request", true, "steps", run.assistant_id, "system"],
  );
});

test("configuration and context reach the graph", async () => {
  const { answer, seen } = await client.runs.wait(null, "context", {
    input: {},
    context: { tone: "curt", length: 1 },
    config: { tags: ["blue"], recursion_limit: 7 },
  });

  assert.equal(answer, "curt 1");
  assert.ok(seen.tags.includes("blue"));
  assert.equal(seen.configurable.tone, "curt");
});

test("a graph without given context gets its defaults", async () => {
  const { answer } = await client.runs.wait(null, "context", { input: {} });

  assert.equal(answer, "friendly 3");
});

test("context and configurable together are rejected", async () => {
  const error = await rejection(
    client.runs.wait(null, "context", {
      input: {},
      context: { tone: "curt" },
      config: { configurable: { tone: "mild" } },
    }),
  );

  assert.equal(error.status, 400);
});

test("durability exit stores one checkpoint", async () => {
  const thread = await newThread();

  await client.runs.wait(thread, "steps", { input: {}, durability: "exit" });

  const history = await client.threads.getHistory(thread);
  assert.equal(history.length, 1);
  assert.equal(history[0].values.count, 3);
});

test("a webhook to a private address is rejected", async () => {
  const error = await rejection(
    client.runs.create(await newThread(), "steps", {
      input: {},
      webhook: "http://127.0.0.1:9/hook",
    }),
  );

  assert.equal(error.status, 422);
  assert.match(error.message, /blocked/);
});

test("an unknown graph is 422 and an unknown assistant 404", async () => {
  const thread = await newThread();

  const graph = await rejection(client.runs.create(thread, "nothing", { input: {} }));
  const assistant = await rejection(client.runs.create(thread, crypto.randomUUID(), { input: {} }));

  assert.deepEqual([graph.status, assistant.status], [422, 404]);
});

test("a wrong key is rejected", async () => {
  const anonymous = connect({ apiKey: "slip_wrong" });

  const error = await rejection(anonymous.runs.create(await newThread(), "steps", { input: {} }));

  assert.equal(error.status, 401);
});

test("an unknown stream mode is rejected with a detail string", async () => {
  const error = await rejection(
    client.runs.create(await newThread(), "steps", { input: {}, streamMode: ["everything"] }),
  );

  assert.equal(error.status, 422);
  assert.equal(typeof JSON.parse(error.text).detail, "string");
});

test("the client sends the request that its hook returns", async () => {
  const seen = [];
  const hooked = connect({
    onRequest: (url, init) => {
      seen.push(url.pathname.split("/").at(-1));
      return { ...init, headers: { ...init.headers, "x-mine": "1" } };
    },
  });

  const chunks = await collect(hooked.runs.stream(null, "steps", { input: {} }));

  assert.deepEqual(seen, ["stream"]);
  assert.equal(dataOf(chunks, "values").at(-1).count, 3);
});
