// Section 8: interrupts, breakpoints, commands and forks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, newThread, dataOf, rejection, userMessage } from "./agent.mjs";

/** Run the graph up to its interrupts; return the thread, the result and the interrupts. */
async function startInterrupted(ask = 1, payload = {}) {
  const thread = await newThread();
  const result = await client.runs.wait(thread, "human", { input: { ask }, ...payload });
  return { thread, result, questions: result.__interrupt__ };
}

const resume = (thread, answer, graph = "human") =>
  client.runs.wait(thread, graph, { command: { resume: answer } });

test("wait returns the interrupt with the values", async () => {
  const { result, questions } = await startInterrupted();

  assert.deepEqual(result.notes, ["draft"]);
  assert.deepEqual(questions.map(({ value }) => value), [{ approve: "send it? (0)" }]);
  assert.match(questions[0].id, /^[0-9a-f]{32}$/);
});

test("an interrupt is streamed as an update and as a value", async () => {
  const chunks = await collect(
    client.runs.stream(await newThread(), "human", {
      input: {},
      streamMode: ["updates", "values"],
    }),
  );

  const [update] = dataOf(chunks, "updates").slice(-1);
  const [value] = dataOf(chunks, "values").slice(-1);
  assert.deepEqual(update.__interrupt__, value.__interrupt__);
  assert.equal(update.__interrupt__[0].value.approve, "send it? (0)");
  assert.deepEqual(value.notes, ["draft"]);
});

test("thread and state show the same interrupt", async () => {
  const { thread, questions } = await startInterrupted();

  const { status, interrupts } = await client.threads.get(thread);
  const state = await client.threads.getState(thread);
  const entry = { id: questions[0].id, value: questions[0].value };
  assert.equal(status, "interrupted");
  assert.deepEqual(interrupts, { [state.tasks[0].id]: [entry] });
  assert.deepEqual(state.tasks[0].interrupts, [entry]);
  assert.deepEqual(state.next, ["approve"]);
  assert.ok(!("__interrupt__" in state.values));
});

test("an interrupted run is a success", async () => {
  const { thread } = await startInterrupted();

  const [run] = await client.runs.list(thread);
  assert.equal(run.status, "success");
});

test("a resume value is returned by the interrupt", async () => {
  const { thread } = await startInterrupted();

  const { notes } = await resume(thread, "yes");

  assert.deepEqual(notes, ["draft", "answer 0: yes", "sent"]);
  assert.equal((await client.threads.get(thread)).status, "idle");
});

test("several interrupts are resumed by their ids", async () => {
  const { thread, questions } = await startInterrupted(3);

  const { notes } = await resume(
    thread,
    Object.fromEntries(questions.map(({ id }, n) => [id, `no ${n}`])),
  );

  assert.deepEqual(
    notes.filter((note) => note.startsWith("answer")).toSorted(),
    questions.map(({ value }, n) => `answer ${value.approve.match(/\d/)[0]}: no ${n}`).toSorted(),
  );
});

test("resuming some of several interrupts returns the rest", async () => {
  const { thread, questions } = await startInterrupted(3);

  const result = await resume(thread, { [questions[1].id]: "yes" });

  assert.deepEqual(
    result.__interrupt__.map(({ id }) => id).toSorted(),
    [questions[0].id, questions[2].id].toSorted(),
  );
});

test("one resume value for several interrupts fails the run", async () => {
  const { thread } = await startInterrupted(2);

  const error = await rejection(resume(thread, "yes"));

  assert.match(error.message, /^RuntimeError: /);
});

test("a command overrides an empty input", async () => {
  const { thread } = await startInterrupted();

  const { notes } = await client.runs.wait(thread, "human", {
    input: {},
    command: { resume: "yes" },
  });

  assert.deepEqual(notes, ["draft", "answer 0: yes", "sent"]);
});

test("new input on an interrupted thread starts over", async () => {
  const { thread, questions } = await startInterrupted();

  const second = await client.runs.wait(thread, "human", { input: { notes: ["again"] } });

  assert.deepEqual(second.notes, ["draft", "again", "draft"]);
  assert.notEqual(second.__interrupt__[0].id, questions[0].id);
});

test("goto __end__ clears the interrupt", async () => {
  const { thread } = await startInterrupted();

  await client.runs.wait(thread, "human", { command: { goto: "__end__", update: null } });

  const { status, interrupts } = await client.threads.get(thread);
  const { next } = await client.threads.getState(thread);
  assert.deepEqual([status, interrupts, next], ["idle", {}, []]);
});

test("a command updates the state and jumps", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "steps", { input: {} });

  const { notes } = await client.runs.wait(thread, "steps", {
    command: { update: { notes: ["jumped"] }, goto: "review" },
  });

  assert.deepEqual(notes.slice(3), ["jumped", "review"]);
});

test("a run stops before a node and continues without input", async () => {
  const thread = await newThread();
  const stopped = await client.runs.wait(thread, "steps", {
    input: {},
    interruptBefore: ["review"],
  });

  const { next } = await client.threads.getState(thread);
  const finished = await client.runs.wait(thread, "steps", { input: null });

  assert.deepEqual(stopped.notes, ["plan", "write"]);
  assert.ok(!("__interrupt__" in stopped));
  assert.deepEqual(next, ["review"]);
  assert.deepEqual(finished.notes, ["plan", "write", "review"]);
});

test("a breakpoint is streamed as an empty list of interrupts", async () => {
  const chunks = await collect(
    client.runs.stream(await newThread(), "steps", {
      input: {},
      interruptAfter: ["plan"],
      streamMode: ["updates"],
    }),
  );

  assert.deepEqual(dataOf(chunks, "updates").at(-1), { __interrupt__: [] });
});

test("interruptAfter * stops after every node", async () => {
  const thread = await newThread();
  const seen = [];
  await client.runs.wait(thread, "steps", { input: {}, interruptAfter: "*" });
  for (let turn = 0; turn < 3; turn += 1) {
    seen.push((await client.threads.getState(thread)).next);
    await client.runs.wait(thread, "steps", { input: null, interruptAfter: "*" });
  }

  assert.deepEqual(seen, [["write"], ["review"], []]);
});

test("an interrupt of a nested subgraph has one id on all levels", async () => {
  const thread = await newThread();
  const chunks = await collect(
    client.runs.stream(thread, "nested", {
      input: { topic: "cats", ask: true },
      streamMode: ["updates"],
      streamSubgraphs: true,
    }),
  );

  const questions = chunks.flatMap(({ data }) => data?.__interrupt__ ?? []);
  const [task] = (await client.threads.getState(thread)).tasks;
  assert.equal(questions.length, 3);
  assert.deepEqual(
    [...new Set(questions.map(({ id }) => id))],
    [task.interrupts[0].id],
  );
  const { report } = await resume(thread, "sure", "nested");
  assert.equal(report, "cats 2 (sure) & cats 1 (sure)");
});

test("the states of subgraphs are included on request", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "nested", { input: { topic: "cats", ask: true } });

  const { tasks } = await client.threads.getState(thread, undefined, { subgraphs: true });

  const research = tasks[0].state;
  assert.deepEqual(research.values.outline, ["cats"]);
  assert.deepEqual(research.next, ["search"]);
  assert.deepEqual(research.tasks[0].state.next, ["fetch"]);
});

test("a functional graph is interrupted, resumed and remembers its result", async () => {
  const thread = await newThread();
  const input = { numbers: [1, 2, 3], ask: true };
  const { __interrupt__: questions } = await client.runs.wait(thread, "functional", { input });

  const first = await resume(thread, 5, "functional");
  const second = await client.runs.wait(thread, "functional", { input: { numbers: [4] } });

  assert.deepEqual(questions[0].value, { total: 14 });
  assert.deepEqual(first, { total: 19, before: 0 });
  assert.deepEqual(second, { total: 16, before: 19 });
});

test("a tool is interrupted and resumed with changed arguments", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "react", { input: userMessage('call book_hotel {"city": "Oslo"}') });

  const { messages } = await resume(
    thread,
    { type: "edit", args: { city: "Bergen", nights: 2 } },
    "react",
  );

  assert.deepEqual(
    messages.slice(-2).map(({ content }) => content),
    ["booked Bergen for 2", "Tool results: booked Bergen for 2"],
  );
});

test("a run from an older checkpoint replays from there", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "steps", { input: {} });
  const history = await client.threads.getHistory(thread);
  const planned = history.find(({ next }) => next[0] === "write");

  const { notes } = await client.runs.wait(thread, "steps", {
    input: null,
    checkpointId: planned.checkpoint.checkpoint_id,
  });

  const after = await client.threads.getHistory(thread, { limit: 20 });
  assert.deepEqual(notes, ["plan", "write", "review"]);
  assert.equal(after.filter(({ metadata }) => metadata.source === "fork").length, 1);
  assert.equal(after.length, history.length + 3);
});

test("input at an older checkpoint creates a branch that becomes the current state", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "chat", { input: userMessage("one") });
  const [head] = await client.threads.getHistory(thread, { limit: 1 });
  await client.runs.wait(thread, "chat", { input: userMessage("two") });

  await client.runs.wait(thread, "chat", {
    input: userMessage("three"),
    checkpoint: head.checkpoint,
  });

  const { values } = await client.threads.getState(thread);
  assert.deepEqual(
    values.messages.filter(({ type }) => type === "human").map(({ content }) => content),
    ["one", "three"],
  );
});

test("input at the current checkpoint creates no branch", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "chat", { input: userMessage("one") });
  const { checkpoint } = await client.threads.getState(thread);
  delete checkpoint.thread_id;

  await client.runs.wait(thread, "chat", { input: userMessage("two"), checkpoint });

  const history = await client.threads.getHistory(thread, { limit: 20 });
  assert.equal(history.length, 6);
  assert.ok(history.every(({ metadata }) => metadata.source !== "fork"));
});
