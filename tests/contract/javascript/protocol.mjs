// Section 10: `client.threads.stream`, over SSE and over a WebSocket.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiKey, client, connect, say, until } from "./agent.mjs";

async function withThread(assistantId, act, options = {}) {
  const thread = client.threads.stream({ assistantId, ...options });
  try {
    return await act(thread);
  } finally {
    await thread.close();
  }
}

test("a run starts by a command, and its output is the state", async () => {
  const output = await withThread("steps", async (thread) => {
    await thread.run.start({ input: { notes: ["asked"] } });
    return thread.output;
  });

  assert.deepEqual(output.notes, ["asked", "plan", "write", "review"]);
});

test("starting makes the thread", async () => {
  const id = await withThread("steps", async (thread) => {
    const { run_id } = await thread.run.start({ input: {} });
    await thread.output;
    assert.equal((await client.runs.get(thread.threadId, run_id)).status, "success");
    return thread.threadId;
  });

  assert.equal((await client.threads.get(id)).metadata.graph_id, "steps");
});

test("values come step by step", async () => {
  const counts = await withThread("steps", async (thread) => {
    const seen = [];
    await thread.run.start({ input: {} });
    for await (const values of thread.values) seen.push(values.count ?? 0);
    return seen;
  });

  assert.deepEqual(counts.slice(-3), [1, 2, 3]);
});

test("messages come in pieces that join", async () => {
  const text = await withThread("chat", async (thread) => {
    await thread.run.start({ input: say("words 20 every 0.02") });
    for await (const message of thread.messages) return message.text;
    return "";
  });

  assert.equal(String(text), Array.from({ length: 20 }, (_, n) => `word${n}`).join(" "));
});

test("a question is told with its namespace, and answered by a command", async () => {
  const { asked, state } = await withThread("nested", async (thread) => {
    await thread.run.start({ input: { topic: "cats", ask: true } });
    for await (const _ of thread.values);
    const [asked] = thread.interrupts;
    await thread.input.respond({
      namespace: asked.namespace,
      interrupt_id: asked.interruptId,
      response: "sure",
    });
    const state = await until(async () => {
      const { values, next } = await client.threads.getState(thread.threadId);
      return next.length === 0 && values;
    }, "the end");
    return { asked, state };
  });

  assert.deepEqual(asked.payload, { "may I fetch": "cats" });
  assert.deepEqual(
    asked.namespace.map((label) => label.split(":")[0]),
    ["research", "search"],
  );
  assert.equal(state.report, "cats 2 (sure) & cats 1 (sure)");
});

test("subgraphs are found as they start", async () => {
  const names = await withThread("nested", async (thread) => {
    const found = [];
    await thread.run.start({ input: { topic: "cats" } });
    for await (const subgraph of thread.subgraphs) found.push(subgraph.name);
    return found;
  });

  assert.ok(names.includes("research"));
});

test("raw channels are subscribed to", async () => {
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

test("a late reader hears what was said before", async () => {
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

test("all of it goes over a WebSocket as well", async () => {
  const socket = connect({ apiKey: null, streamProtocol: "v2-websocket" });
  const thread = socket.threads.stream({
    assistantId: "slow",
    // Node's takes headers; the client itself sends none over a socket.
    webSocketFactory: (url) => new WebSocket(url, { headers: { "x-api-key": apiKey } }),
  });

  // The client subscribes after the start, and takes an end that it hears first for all there is.
  await thread.run.start({ input: { seconds: 0.5 } });
  const output = await thread.output;
  await thread.close();

  assert.equal(output.done, 1);
});
