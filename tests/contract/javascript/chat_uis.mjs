// Section 16.3: the requests of public chat UIs, one after another, as they send them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiKey, apiUrl, client, collect, of, say, until } from "./agent.mjs";

const ORIGIN = "https://chat.example.com";

/** A request as a page of another origin sends it, with the headers that these UIs add. */
const ask = (method, path, body, headers = {}) =>
  fetch(`${apiUrl}${path}`, {
    method,
    headers: {
      origin: ORIGIN,
      "content-type": "application/json",
      "x-api-key": apiKey,
      "x-auth-scheme": "langsmith",
      ...headers,
    },
    body: body && JSON.stringify(body),
  });

const data = async (method, path, body) => {
  const response = await ask(method, path, body);
  assert.equal(response.status, 200, `${method} ${path}`);
  return response.json();
};

const STREAM = {
  stream_mode: ["values", "messages-tuple", "custom"],
  stream_subgraphs: true,
  stream_resumable: true,
  on_disconnect: "continue",
};

/** Send a run's request, and read its stream to the end. */
async function run(thread, body) {
  const response = await ask("POST", `/threads/${thread}/runs/stream`, { ...STREAM, ...body });
  assert.equal(response.status, 200);
  return { response, text: await response.text() };
}

test("a browser is let in from any origin, with the headers it names", async () => {
  const preflight = await ask("OPTIONS", "/threads/search", undefined, {
    "access-control-request-method": "POST",
    "access-control-request-headers": "content-type,x-api-key,x-auth-scheme",
  });

  const allowed = preflight.headers.get("access-control-allow-headers").toLowerCase();
  assert.ok([200, 204].includes(preflight.status));
  assert.ok(["*", ORIGIN].includes(preflight.headers.get("access-control-allow-origin")));
  for (const name of ["content-type", "x-api-key", "x-auth-scheme"]) {
    assert.ok(allowed.includes(name) || allowed === "*", name);
  }
});

test("agent-chat-ui: is it there, which threads, and a first message", async () => {
  assert.equal((await ask("GET", "/info")).status, 200);
  const [{ assistant_id }] = await data("POST", "/assistants/search", { graph_id: "chat" });
  const search = { metadata: { assistant_id }, limit: 100 };
  const before = await data("POST", "/threads/search", search);

  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const { response, text } = await run(thread_id, { assistant_id: "chat", input: say("hello") });
  const history = await data("POST", `/threads/${thread_id}/history`, { limit: 10 });
  const after = await data("POST", "/threads/search", search);

  assert.match(response.headers.get("content-location"), /^\/threads\/.+\/runs\/.+$/);
  assert.match(response.headers.get("access-control-expose-headers"), /content-location/i);
  assert.match(text, /^event: metadata\r\ndata: /);
  assert.equal(history[0].values.messages.at(-1).content, "You said: hello");
  assert.ok(!before.some((thread) => thread.thread_id === thread_id));
  assert.ok(after.some((thread) => thread.thread_id === thread_id));
});

test("agent-chat-ui: threads are found by the graph's name as well", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "chat", input: say("hello") });

  const found = await data("POST", "/threads/search", { metadata: { graph_id: "chat" }, limit: 100 });

  assert.ok(found.some((thread) => thread.thread_id === thread_id));
});

test("agent-chat-ui: the next message names the head, and regenerating its parent", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "chat", input: say("one") });
  const [head] = await data("POST", `/threads/${thread_id}/history`, { limit: 10 });
  const { thread_id: _, ...checkpoint } = head.checkpoint;
  const { thread_id: __, ...parent } = head.parent_checkpoint;

  await run(thread_id, { assistant_id: "chat", input: say("two"), checkpoint });
  await run(thread_id, { assistant_id: "chat", checkpoint: parent });

  const history = await data("POST", `/threads/${thread_id}/history`, { limit: 20 });
  assert.deepEqual(
    history[0].values.messages.map(({ content }) => content),
    ["one", "You said: one"],
  );
  assert.equal(history.filter(({ metadata }) => metadata.source === "fork").length, 1);
});

test("agent-chat-ui: a decision is sent as a resume beside an empty input", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const asked = say('call book_hotel {"city": "Oslo"}');
  await run(thread_id, { assistant_id: "react", input: asked });

  await run(thread_id, {
    assistant_id: "react",
    input: {},
    command: { resume: { decisions: [{ type: "approve" }] } },
  });

  const { values, status } = await data("GET", `/threads/${thread_id}`);
  assert.equal(values.messages.at(-1).content, "The tools said: booked Oslo for 1");
  assert.equal(status, "idle");
});

test("agent-chat-ui: marking as resolved ends what waits", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const asked = say('call book_hotel {"city": "Oslo"}');
  await run(thread_id, { assistant_id: "react", input: asked });

  await run(thread_id, { assistant_id: "react", input: {}, command: { goto: "__end__" } });

  const { status, interrupts } = await data("GET", `/threads/${thread_id}`);
  assert.deepEqual([status, interrupts], ["idle", {}]);
});

test("agent-chat-ui: stopping drops the connection, and the run goes on", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const leaving = new AbortController();
  const stream = client.runs.stream(thread_id, "chat", {
    input: say("words 20 every 0.01"),
    streamMode: ["messages-tuple"],
    streamResumable: true,
    onDisconnect: "continue",
    signal: leaving.signal,
  });
  await stream.next();

  leaving.abort();

  await collect(stream).catch(() => {});
  const { values } = await until(async () => {
    const thread = await data("GET", `/threads/${thread_id}`);
    return thread.status === "idle" && thread;
  }, "the run's end");
  assert.match(values.messages.at(-1).content, /word19$/);
});

test("deep-agents-ui: the assistant by its id, or the one that the system made", async () => {
  const found = await data("POST", "/assistants/search", { graph_id: "react", limit: 100 });
  const system = found.find(({ metadata }) => metadata.created_by === "system");

  const assistant = await data("GET", `/assistants/${system.assistant_id}`);

  assert.equal(assistant.graph_id, "react");
});

test("deep-agents-ui: threads in pages of twenty, by status and assistant, with titles", async () => {
  const assistant = await client.assistants.create({ graphId: "react" });
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: assistant.assistant_id, input: say("a title") });

  const page = await data("POST", "/threads/search", {
    limit: 20,
    offset: 0,
    sort_by: "updated_at",
    sort_order: "desc",
    status: "idle",
    metadata: { assistant_id: assistant.assistant_id },
  });

  assert.deepEqual(
    page.map((thread) => [thread.thread_id, thread.values.messages[0].content]),
    [[thread_id, "a title"]],
  );
});

test("deep-agents-ui: steps through the tools", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const step = { assistant_id: "react", config: { recursion_limit: 100 } };
  const asked = say('call multiply {"a": 6, "b": 7}');
  const next = async () => (await data("POST", `/threads/${thread_id}/history`, { limit: 1 }))[0].next;

  await run(thread_id, { ...step, input: asked, interrupt_before: ["tools"] });
  const first = await next();
  await run(thread_id, { ...step, input: null, interrupt_after: ["tools"] });
  const second = await next();
  await run(thread_id, { ...step, input: null });

  assert.deepEqual([first, second, await next()], [["tools"], ["agent"], []]);
});

test("deep-agents-ui: files are written into the state", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "steps", input: {} });

  await data("POST", `/threads/${thread_id}/state`, { values: { seen: { "a.txt": "text" } } });

  const { values } = await data("GET", `/threads/${thread_id}/state`);
  assert.deepEqual(values.seen, { "a.txt": "text" });
});

test("deep-agents-ui: after a reload the stream is read from its beginning", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const { response, text } = await run(thread_id, { assistant_id: "chat", input: say("words 9") });
  const location = response.headers.get("content-location");

  const again = await ask("GET", `${location}/stream`, undefined, { "last-event-id": "-1" });

  assert.equal(again.status, 200);
  assert.equal(await again.text(), text);
});

test("deep-agents-ui: stopping cancels", async () => {
  const { thread_id } = await data("POST", "/threads", { metadata: {} });
  const { run_id } = await data("POST", `/threads/${thread_id}/runs`, {
    assistant_id: "chat",
    input: say("words 200 every 0.05"),
    ...STREAM,
  });

  const answer = await ask("POST", `/threads/${thread_id}/runs/${run_id}/cancel?wait=0&action=interrupt`);

  assert.ok([202, 204].includes(answer.status));
  await until(
    async () => (await client.runs.get(thread_id, run_id)).status === "interrupted",
    "the cancelling",
  );
});

test("a refusal can be read from another origin", async () => {
  for (const [path, headers] of [
    [`/threads/${crypto.randomUUID()}`, {}],
    ["/info", { "x-api-key": "slip_wrong" }],
    ["/no/such/place", {}],
  ]) {
    const response = await ask("GET", path, undefined, headers);

    assert.ok(response.status >= 400);
    assert.ok(["*", ORIGIN].includes(response.headers.get("access-control-allow-origin")), path);
  }
});

test("interrupts of a stream are where useStream looks for them", async () => {
  const thread = await client.threads.create();
  const chunks = await collect(
    client.runs.stream(thread.thread_id, "react", {
      input: say('call book_hotel {"city": "Oslo"}'),
      streamMode: ["values"],
    }),
  );

  const history = await client.threads.getHistory(thread.thread_id);
  const [streamed] = of(chunks, "values").at(-1).__interrupt__;
  const [kept] = history[0].tasks.at(-1).interrupts;
  assert.deepEqual([streamed.id, streamed.value], [kept.id, kept.value]);
});
