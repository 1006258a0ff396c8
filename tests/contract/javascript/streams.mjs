// Section 9: the events of each stream mode.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, newThread, dataOf, userMessage } from "./agent.mjs";

async function stream(graph, payload) {
  const thread = await newThread();
  const chunks = await collect(client.runs.stream(thread, graph, payload));
  return { thread, chunks, names: chunks.map(({ event }) => event) };
}

test("the first event and the callback name the run", async () => {
  let created;
  const { thread, chunks } = await stream("steps", {
    input: {},
    onRunCreated: (run) => {
      created = run;
    },
  });

  assert.equal(chunks[0].event, "metadata");
  assert.deepEqual(created, { run_id: chunks[0].data.run_id, thread_id: thread });
  assert.equal(chunks[0].data.attempt, 1);
});

test("the last event is end", async () => {
  const { names } = await stream("steps", { input: {} });

  assert.equal(names.at(-1), "end");
  assert.equal(names.indexOf("end"), names.length - 1);
});

test("values shows the state after each step", async () => {
  const { chunks } = await stream("steps", { input: { notes: ["start"] }, streamMode: "values" });

  assert.deepEqual(
    dataOf(chunks, "values").map(({ notes }) => notes.length),
    [1, 2, 3, 4],
  );
});

test("values is the default mode", async () => {
  const { names } = await stream("steps", { input: {} });

  assert.deepEqual([...new Set(names)], ["metadata", "values", "end"]);
});

test("updates contains the return value of each node", async () => {
  const { chunks } = await stream("steps", { input: {}, streamMode: ["updates"] });

  assert.deepEqual(
    dataOf(chunks, "updates").map((update) => Object.keys(update)),
    [["plan"], ["write"], ["review"]],
  );
  assert.equal(dataOf(chunks, "updates")[2].review.count, 3);
});

test("custom contains the data of the stream writer", async () => {
  const { chunks } = await stream("steps", { input: {}, streamMode: ["custom"] });

  assert.deepEqual(dataOf(chunks, "custom"), [{ at: "plan" }, { at: "write" }, { at: "review" }]);
});

test("tasks contains the start and the end of each node", async () => {
  const { chunks } = await stream("steps", { input: {}, streamMode: ["tasks"] });

  const tasks = dataOf(chunks, "tasks");
  assert.deepEqual(
    tasks.map((task) => [task.name, "triggers" in task]),
    ["plan", "write", "review"].flatMap((name) => [
      [name, true],
      [name, false],
    ]),
  );
  assert.equal(tasks[0].id, tasks[1].id);
  assert.equal(tasks[1].error, null);
  assert.deepEqual(tasks[1].interrupts, []);
});

test("checkpoints contains the saved checkpoints with their config", async () => {
  const { thread, chunks } = await stream("steps", { input: {}, streamMode: ["checkpoints"] });

  const checkpoints = dataOf(chunks, "checkpoints");
  assert.deepEqual(
    checkpoints.map(({ metadata }) => metadata.step),
    [-1, 0, 1, 2, 3],
  );
  assert.deepEqual(checkpoints.at(-1).next, []);
  const head = (await client.threads.getState(thread)).checkpoint;
  assert.equal(checkpoints.at(-1).config.configurable.checkpoint_id, head.checkpoint_id);
});

test("debug contains checkpoints, tasks and results in order", async () => {
  const { chunks } = await stream("steps", { input: {}, streamMode: ["debug"] });

  assert.deepEqual(
    dataOf(chunks, "debug").map(({ step, type }) => `${step} ${type}`),
    [
      "-1 checkpoint",
      "0 checkpoint",
      ...[1, 2, 3].flatMap((n) => [`${n} task`, `${n} task_result`, `${n} checkpoint`]),
    ],
  );
});

test("events is the event stream of LangChain with the run as root", async () => {
  const { chunks } = await stream("chat", { input: userMessage("words 3"), streamMode: ["events"] });

  const events = dataOf(chunks, "events");
  assert.equal(events[0].event, "on_chain_start");
  assert.equal(events[0].run_id, chunks[0].data.run_id);
  const tokens = events.filter(({ event }) => event === "on_chat_model_stream");
  assert.equal(tokens.map(({ data }) => data.chunk.content).join(""), "word0 word1 word2");
});

test("messages contains the growing message of the state", async () => {
  const { thread, chunks } = await stream("chat", {
    input: userMessage("words 5"),
    streamMode: ["messages"],
  });

  const partial = dataOf(chunks, "messages/partial").map(([message]) => message);
  const [id] = Object.keys(dataOf(chunks, "messages/metadata")[0]);
  assert.deepEqual([...new Set(partial.map((message) => message.id))], [id]);
  assert.deepEqual([...new Set(partial.map(({ content }) => content))].slice(0, 2), [
    "word0",
    "word0 word1",
  ]);
  const { values } = await client.threads.getState(thread);
  assert.equal(values.messages.at(-1).content, partial.at(-1).content);
});

test("messages-tuple contains chunks that join to the message of the state", async () => {
  const { thread, chunks } = await stream("chat", {
    input: userMessage("words 100"),
    streamMode: ["messages-tuple"],
  });

  const pieces = dataOf(chunks, "messages");
  const whole = pieces.map(([message]) => message.content).join("");
  const { values } = await client.threads.getState(thread);
  assert.equal(whole, values.messages.at(-1).content);
  assert.equal(whole.split(" ").length, 100);
  assert.equal(pieces[0][0].type, "AIMessageChunk");
  assert.deepEqual(
    [...new Set(pieces.map(([, metadata]) => metadata.langgraph_node))],
    ["agent"],
  );
});

test("all chunks and the message of the state have one id", async () => {
  const { thread, chunks } = await stream("chat", {
    input: userMessage("words 3"),
    streamMode: ["messages-tuple"],
  });

  const ids = new Set(dataOf(chunks, "messages").map(([message]) => message.id));
  const { values } = await client.threads.getState(thread);
  assert.equal(ids.size, 1);
  assert.deepEqual([...ids], [values.messages.at(-1).id]);
});

test("tool calls and tool results are streamed as messages", async () => {
  const { chunks } = await stream("chat", {
    input: userMessage('call multiply {"a": 6, "b": 7}'),
    streamMode: ["messages-tuple"],
  });

  const messages = dataOf(chunks, "messages").map(([message]) => message);
  const [call] = messages.flatMap((message) => message.tool_call_chunks ?? []);
  assert.equal(call.name, "multiply");
  assert.deepEqual(JSON.parse(call.args), { a: 6, b: 7 });
  const tool = messages.find(({ type }) => type === "tool");
  assert.deepEqual([tool.content, tool.tool_call_id, tool.status], ["42", call.id, "success"]);
});

test("events of several modes are streamed in order", async () => {
  const { names } = await stream("steps", {
    input: {},
    streamMode: ["values", "updates", "custom"],
  });

  const step = ["custom", "updates", "values"];
  assert.deepEqual(
    names.filter((name) => step.includes(name)).slice(-9),
    [...step, ...step, ...step],
  );
});

test("event names contain the path of the subgraph", async () => {
  const { names } = await stream("nested", {
    input: { topic: "cats" },
    streamMode: ["updates", "custom"],
    streamSubgraphs: true,
  });

  const shapes = names.map((name) => name.replaceAll(/:[0-9a-f-]{36}/g, ""));
  assert.deepEqual(
    shapes.filter((name) => name.startsWith("updates")),
    [
      "updates",
      "updates|research",
      "updates|research|search",
      "updates|research|search",
      "updates|research",
      "updates|research",
      "updates",
      "updates",
    ],
  );
  assert.ok(shapes.includes("custom|research|search"));
});

test("without subgraphs only the root graph is streamed", async () => {
  const { names } = await stream("nested", { input: { topic: "cats" }, streamMode: ["updates"] });

  assert.deepEqual(names, ["metadata", "updates", "updates", "updates", "end"]);
});

test("an error is the last event of a stream", async () => {
  const { names, chunks } = await stream("steps", { input: { fail: "write" } });

  assert.equal(names.at(-1), "error");
  assert.deepEqual(chunks.at(-1).data, { error: "ValueError", message: "no such city" });
});

test("a stateless run is streamed", async () => {
  let created;
  const chunks = await collect(
    client.runs.stream(null, "steps", {
      input: {},
      onRunCreated: (run) => {
        created = run;
      },
    }),
  );

  assert.equal(created.run_id, chunks[0].data.run_id);
  assert.equal(dataOf(chunks, "values").at(-1).count, 3);
});

test("feedback keys are accepted", async () => {
  const { names } = await stream("steps", { input: {}, feedbackKeys: ["thumbs"] });

  assert.ok(!names.includes("error"));
});

test("map-reduce merges results in the order of sending", async () => {
  const { chunks } = await stream("mapper", {
    input: { subjects: ["a", "cat", "elephant"] },
    streamMode: ["updates", "values"],
  });

  const { jokes, best } = dataOf(chunks, "values").at(-1);
  assert.deepEqual(jokes, ["a", "cat", "elephant"].map((word) => `a ${word} walks into a bar`));
  assert.equal(best, jokes[2]);
  assert.equal(dataOf(chunks, "updates").filter((update) => "write_joke" in update).length, 3);
});

test("text outside of ASCII is streamed unchanged", async () => {
  const { chunks } = await stream("chat", { input: userMessage("čeština 🌊 \u2028 ' \" <b>") });

  const { messages } = dataOf(chunks, "values").at(-1);
  assert.equal(messages[0].content, "čeština 🌊 \u2028 ' \" <b>");
});
