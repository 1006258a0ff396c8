// Section 8: questions, breakpoints, commands and forks.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, newThread, of, refusal, say } from "./agent.mjs";

/** A thread whose letter waits for approval, and what the run answered. */
async function asked(ask = 1, payload = {}) {
  const thread = await newThread();
  const answer = await client.runs.wait(thread, "human", { input: { ask }, ...payload });
  return { thread, answer, questions: answer.__interrupt__ };
}

const resume = (thread, answer, graph = "human") =>
  client.runs.wait(thread, graph, { command: { resume: answer } });

test("a question is in the answer of wait, beside the values", async () => {
  const { answer, questions } = await asked();

  assert.deepEqual(answer.notes, ["draft"]);
  assert.deepEqual(questions.map(({ value }) => value), [{ approve: "send it? (0)" }]);
  assert.match(questions[0].id, /^[0-9a-f]{32}$/);
});

test("a question streams as an update and as a value", async () => {
  const chunks = await collect(
    client.runs.stream(await newThread(), "human", {
      input: {},
      streamMode: ["updates", "values"],
    }),
  );

  const [update] = of(chunks, "updates").slice(-1);
  const [value] = of(chunks, "values").slice(-1);
  assert.deepEqual(update.__interrupt__, value.__interrupt__);
  assert.equal(update.__interrupt__[0].value.approve, "send it? (0)");
  assert.deepEqual(value.notes, ["draft"]);
});

test("a question is shown by thread and state, keyed alike", async () => {
  const { thread, questions } = await asked();

  const { status, interrupts } = await client.threads.get(thread);
  const state = await client.threads.getState(thread);
  const entry = { id: questions[0].id, value: questions[0].value };
  assert.equal(status, "interrupted");
  assert.deepEqual(interrupts, { [state.tasks[0].id]: [entry] });
  assert.deepEqual(state.tasks[0].interrupts, [entry]);
  assert.deepEqual(state.next, ["approve"]);
  assert.ok(!("__interrupt__" in state.values));
});

test("the run that asked is a success", async () => {
  const { thread } = await asked();

  const [run] = await client.runs.list(thread);
  assert.equal(run.status, "success");
});

test("an answer goes to the one who asked", async () => {
  const { thread } = await asked();

  const { notes } = await resume(thread, "yes");

  assert.deepEqual(notes, ["draft", "answer 0: yes", "sent"]);
  assert.equal((await client.threads.get(thread)).status, "idle");
});

test("several questions are answered by their ids", async () => {
  const { thread, questions } = await asked(3);

  const { notes } = await resume(
    thread,
    Object.fromEntries(questions.map(({ id }, n) => [id, `no ${n}`])),
  );

  assert.deepEqual(
    notes.filter((note) => note.startsWith("answer")).toSorted(),
    questions.map(({ value }, n) => `answer ${value.approve.match(/\d/)[0]}: no ${n}`).toSorted(),
  );
});

test("who answers some of several questions is asked the rest", async () => {
  const { thread, questions } = await asked(3);

  const answer = await resume(thread, { [questions[1].id]: "yes" });

  assert.deepEqual(
    answer.__interrupt__.map(({ id }) => id).toSorted(),
    [questions[0].id, questions[2].id].toSorted(),
  );
});

test("one answer to several questions is refused in the run", async () => {
  const { thread } = await asked(2);

  const error = await refusal(resume(thread, "yes"));

  assert.match(error.message, /^RuntimeError: /);
});

test("a command counts, and the empty input beside it does not", async () => {
  const { thread } = await asked();

  const { notes } = await client.runs.wait(thread, "human", {
    input: {},
    command: { resume: "yes" },
  });

  assert.deepEqual(notes, ["draft", "answer 0: yes", "sent"]);
});

test("new input on a waiting thread begins anew", async () => {
  const { thread, questions } = await asked();

  const again = await client.runs.wait(thread, "human", { input: { notes: ["again"] } });

  assert.deepEqual(again.notes, ["draft", "again", "draft"]);
  assert.notEqual(again.__interrupt__[0].id, questions[0].id);
});

test("goto __end__ closes a thread", async () => {
  const { thread } = await asked();

  await client.runs.wait(thread, "human", { command: { goto: "__end__", update: null } });

  const { status, interrupts } = await client.threads.get(thread);
  const { next } = await client.threads.getState(thread);
  assert.deepEqual([status, interrupts, next], ["idle", {}, []]);
});

test("a command may update and jump", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "steps", { input: {} });

  const { notes } = await client.runs.wait(thread, "steps", {
    command: { update: { notes: ["jumped"] }, goto: "review" },
  });

  assert.deepEqual(notes.slice(3), ["jumped", "review"]);
});

test("a run stops before a node and goes on without input", async () => {
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

test("a breakpoint streams as an empty list of questions", async () => {
  const chunks = await collect(
    client.runs.stream(await newThread(), "steps", {
      input: {},
      interruptAfter: ["plan"],
      streamMode: ["updates"],
    }),
  );

  assert.deepEqual(of(chunks, "updates").at(-1), { __interrupt__: [] });
});

test("* steps through all nodes", async () => {
  const thread = await newThread();
  const seen = [];
  await client.runs.wait(thread, "steps", { input: {}, interruptAfter: "*" });
  for (let turn = 0; turn < 3; turn += 1) {
    seen.push((await client.threads.getState(thread)).next);
    await client.runs.wait(thread, "steps", { input: null, interruptAfter: "*" });
  }

  assert.deepEqual(seen, [["write"], ["review"], []]);
});

test("a question two graphs deep has one id on all levels", async () => {
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

test("the state of the graphs below is shown when asked for", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "nested", { input: { topic: "cats", ask: true } });

  const { tasks } = await client.threads.getState(thread, undefined, { subgraphs: true });

  const research = tasks[0].state;
  assert.deepEqual(research.values.outline, ["cats"]);
  assert.deepEqual(research.next, ["search"]);
  assert.deepEqual(research.tasks[0].state.next, ["fetch"]);
});

test("the functional API asks, goes on and remembers", async () => {
  const thread = await newThread();
  const input = { numbers: [1, 2, 3], ask: true };
  const { __interrupt__: questions } = await client.runs.wait(thread, "functional", { input });

  const first = await resume(thread, 5, "functional");
  const second = await client.runs.wait(thread, "functional", { input: { numbers: [4] } });

  assert.deepEqual(questions[0].value, { total: 14 });
  assert.deepEqual(first, { total: 19, before: 0 });
  assert.deepEqual(second, { total: 16, before: 19 });
});

test("a tool asks, and the person changes its arguments", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "react", { input: say('call book_hotel {"city": "Oslo"}') });

  const { messages } = await resume(
    thread,
    { type: "edit", args: { city: "Bergen", nights: 2 } },
    "react",
  );

  assert.deepEqual(
    messages.slice(-2).map(({ content }) => content),
    ["booked Bergen for 2", "The tools said: booked Bergen for 2"],
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

test("input at an older checkpoint makes a branch, which becomes the head", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "chat", { input: say("one") });
  const [head] = await client.threads.getHistory(thread, { limit: 1 });
  await client.runs.wait(thread, "chat", { input: say("two") });

  await client.runs.wait(thread, "chat", {
    input: say("three"),
    checkpoint: head.checkpoint,
  });

  const { values } = await client.threads.getState(thread);
  assert.deepEqual(
    values.messages.filter(({ type }) => type === "human").map(({ content }) => content),
    ["one", "three"],
  );
});

test("the head as the checkpoint is no branch", async () => {
  const thread = await newThread();
  await client.runs.wait(thread, "chat", { input: say("one") });
  const { checkpoint } = await client.threads.getState(thread);
  delete checkpoint.thread_id;

  await client.runs.wait(thread, "chat", { input: say("two"), checkpoint });

  const history = await client.threads.getHistory(thread, { limit: 20 });
  assert.equal(history.length, 6);
  assert.ok(history.every(({ metadata }) => metadata.source !== "fork"));
});
