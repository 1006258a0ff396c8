// Section 10: `client.threads.stream`, over SSE and over a WebSocket.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiKey, client, connect, userMessage, waitUntil } from "./agent.mjs";

async function withThread(assistantId, act, options = {}) {
  const thread = client.threads.stream({ assistantId, ...options });
  try {
    return await act(thread);
  } finally {
    await thread.close();
  }
}

test("a run is started by a command, and its output is the state", async () => {
  const output = await withThread("steps", async (thread) => {
    await thread.run.start({ input: { notes: ["start"] } });
    return thread.output;
  });

  assert.deepEqual(output.notes, ["start", "plan", "write", "review"]);
});

test("starting a run creates the thread", async () => {
  const id = await withThread("steps", async (thread) => {
    const { run_id } = await thread.run.start({ input: {} });
    await thread.output;
    assert.equal((await client.runs.get(thread.threadId, run_id)).status, "success");
    return thread.threadId;
  });

  assert.equal((await client.threads.get(id)).metadata.graph_id, "steps");
});

test("values are streamed after each step", async () => {
  const counts = await withThread("steps", async (thread) => {
    const seen = [];
    await thread.run.start({ input: {} });
    for await (const values of thread.values) seen.push(values.count ?? 0);
    return seen;
  });

  assert.deepEqual(counts.slice(-3), [1, 2, 3]);
});

test("messages are streamed in chunks", async () => {
  const text = await withThread("chat", async (thread) => {
    await thread.run.start({ input: userMessage("words 20 every 0.02") });
    for await (const message of thread.messages) return message.text;
    return "";
  });

  assert.equal(String(text), Array.from({ length: 20 }, (_, n) => `word${n}`).join(" "));
});

test("an interrupt has its namespace and is resumed by a command", async () => {
  const { interrupt, state } = await withThread("nested", async (thread) => {
    await thread.run.start({ input: { topic: "cats", ask: true } });
    for await (const _ of thread.values);
    const [interrupt] = thread.interrupts;
    await thread.input.respond({
      namespace: interrupt.namespace,
      interrupt_id: interrupt.interruptId,
      response: "sure",
    });
    const state = await waitUntil(async () => {
      const { values, next } = await client.threads.getState(thread.threadId);
      return next.length === 0 && values;
    }, "the end");
    return { interrupt, state };
  });

  assert.deepEqual(interrupt.payload, { "may I fetch": "cats" });
  assert.deepEqual(
    interrupt.namespace.map((label) => label.split(":")[0]),
    ["research", "search"],
  );
  assert.equal(state.report, "cats 2 (sure) & cats 1 (sure)");
});

test("subgraphs are streamed as they start", async () => {
  const names = await withThread("nested", async (thread) => {
    const names = [];
    await thread.run.start({ input: { topic: "cats" } });
    for await (const subgraph of thread.subgraphs) names.push(subgraph.name);
    return names;
  });

  assert.ok(names.includes("research"));
});

test("raw channels are subscribed", async () => {
  const methods = await withThread("steps", async (thread) => {
    await thread.run.start({ input: {} });
    const subscription = await thread.subscribe(["lifecycle", "values"]);
    const seen = [];
    for await (const event of subscription) {
      seen.push(event.method);
      if (event.method === "lifecycle" && event.params.data.event === "completed") break;
    }
    return seen;
  });

  assert.equal(methods[0], "lifecycle");
  assert.ok(methods.includes("values"));
});

test("a late subscriber gets the earlier events", async () => {
  const id = await withThread("steps", async (thread) => {
    await thread.run.start({ input: {} });
    await thread.output;
    return thread.threadId;
  });

  const late = client.threads.stream(id, { assistantId: "steps" });
  const subscription = await late.subscribe(["values"]);
  const counts = [];
  for await (const event of subscription) {
    counts.push(event.params.data.count ?? 0);
    if (counts.at(-1) === 3) break;
  }
  await late.close();

  assert.deepEqual(counts.slice(-3), [1, 2, 3]);
});

test("a run is started and read over a WebSocket", async () => {
  const socket = connect({ apiKey: null, streamProtocol: "v2-websocket" });
  const thread = socket.threads.stream({
    assistantId: "slow",
    // The WebSocket of Node accepts headers; the client itself sends none.
    webSocketFactory: (url) => new WebSocket(url, { headers: { "x-api-key": apiKey } }),
  });

  // The client subscribes after the start, and treats an end event that arrives first as the end.
  await thread.run.start({ input: { seconds: 0.5 } });
  const output = await thread.output;
  await thread.close();

  assert.equal(output.done, 1);
});
