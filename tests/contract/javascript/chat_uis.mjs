// Section 16.3: the requests of public chat UIs, in their order.
import assert from "node:assert/strict";
import { test } from "node:test";
import { apiKey, apiUrl, client, collect, dataOf, userMessage, waitUntil } from "./agent.mjs";

const ORIGIN = "https://chat.example.com";

/** Send a request as a page of another origin, with the headers that these UIs add. */
const request = (method, path, body, headers = {}) =>
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

const readJson = async (method, path, body) => {
  const response = await request(method, path, body);
  assert.equal(response.status, 200, `${method} ${path}`);
  return response.json();
};

const STREAM = {
  stream_mode: ["values", "messages-tuple", "custom"],
  stream_subgraphs: true,
  stream_resumable: true,
  on_disconnect: "continue",
};

/** Start a run and read its stream to the end. */
async function run(thread, body) {
  const response = await request("POST", `/threads/${thread}/runs/stream`, { ...STREAM, ...body });
  assert.equal(response.status, 200);
  return { response, text: await response.text() };
}

test("a preflight allows any origin and the requested headers", async () => {
  const preflight = await request("OPTIONS", "/threads/search", undefined, {
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

test("agent-chat-ui: info, thread search and a first message", async () => {
  assert.equal((await request("GET", "/info")).status, 200);
  const [{ assistant_id }] = await readJson("POST", "/assistants/search", { graph_id: "chat" });
  const search = { metadata: { assistant_id }, limit: 100 };
  const before = await readJson("POST", "/threads/search", search);

  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const { response, text } = await run(thread_id, { assistant_id: "chat", input: userMessage("hello") });
  const history = await readJson("POST", `/threads/${thread_id}/history`, { limit: 10 });
  const after = await readJson("POST", "/threads/search", search);

  assert.match(response.headers.get("content-location"), /^\/threads\/.+\/runs\/.+$/);
  assert.match(response.headers.get("access-control-expose-headers"), /content-location/i);
  assert.match(text, /^event: metadata\r\ndata: /);
  assert.equal(history[0].values.messages.at(-1).content, "You wrote: hello");
  assert.ok(!before.some((thread) => thread.thread_id === thread_id));
  assert.ok(after.some((thread) => thread.thread_id === thread_id));
});

test("agent-chat-ui: threads are searched by graph id", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "chat", input: userMessage("hello") });

  const rows = await readJson("POST", "/threads/search", { metadata: { graph_id: "chat" }, limit: 100 });

  assert.ok(rows.some((thread) => thread.thread_id === thread_id));
});

test("agent-chat-ui: a message names the current checkpoint, and regenerating its parent", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "chat", input: userMessage("one") });
  const [head] = await readJson("POST", `/threads/${thread_id}/history`, { limit: 10 });
  const { thread_id: _, ...checkpoint } = head.checkpoint;
  const { thread_id: __, ...parent } = head.parent_checkpoint;

  await run(thread_id, { assistant_id: "chat", input: userMessage("two"), checkpoint });
  await run(thread_id, { assistant_id: "chat", checkpoint: parent });

  const history = await readJson("POST", `/threads/${thread_id}/history`, { limit: 20 });
  assert.deepEqual(
    history[0].values.messages.map(({ content }) => content),
    ["one", "You wrote: one"],
  );
  assert.equal(history.filter(({ metadata }) => metadata.source === "fork").length, 1);
});

test("agent-chat-ui: a decision is sent as a resume with an empty input", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const input = userMessage('call book_hotel {"city": "Oslo"}');
  await run(thread_id, { assistant_id: "react", input });

  await run(thread_id, {
    assistant_id: "react",
    input: {},
    command: { resume: { decisions: [{ type: "approve" }] } },
  });

  const { values, status } = await readJson("GET", `/threads/${thread_id}`);
  assert.equal(values.messages.at(-1).content, "Tool results: booked Oslo for 1");
  assert.equal(status, "idle");
});

test("agent-chat-ui: marking as resolved clears the interrupt", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const input = userMessage('call book_hotel {"city": "Oslo"}');
  await run(thread_id, { assistant_id: "react", input });

  await run(thread_id, { assistant_id: "react", input: {}, command: { goto: "__end__" } });

  const { status, interrupts } = await readJson("GET", `/threads/${thread_id}`);
  assert.deepEqual([status, interrupts], ["idle", {}]);
});

test("agent-chat-ui: stopping closes the connection, and the run continues", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const controller = new AbortController();
  const stream = client.runs.stream(thread_id, "chat", {
    input: userMessage("words 20 every 0.01"),
    streamMode: ["messages-tuple"],
    streamResumable: true,
    onDisconnect: "continue",
    signal: controller.signal,
  });
  await stream.next();

  controller.abort();

  await collect(stream).catch(() => {});
  const { values } = await waitUntil(async () => {
    const thread = await readJson("GET", `/threads/${thread_id}`);
    return thread.status === "idle" && thread;
  }, "the run's end");
  assert.match(values.messages.at(-1).content, /word19$/);
});

test("deep-agents-ui: the system assistant is read by its id", async () => {
  const rows = await readJson("POST", "/assistants/search", { graph_id: "react", limit: 100 });
  const system = rows.find(({ metadata }) => metadata.created_by === "system");

  const assistant = await readJson("GET", `/assistants/${system.assistant_id}`);

  assert.equal(assistant.graph_id, "react");
});

test("deep-agents-ui: threads in pages of twenty, by status and assistant, with titles", async () => {
  const assistant = await client.assistants.create({ graphId: "react" });
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: assistant.assistant_id, input: userMessage("a title") });

  const page = await readJson("POST", "/threads/search", {
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
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const step = { assistant_id: "react", config: { recursion_limit: 100 } };
  const input = userMessage('call multiply {"a": 6, "b": 7}');
  const next = async () => (await readJson("POST", `/threads/${thread_id}/history`, { limit: 1 }))[0].next;

  await run(thread_id, { ...step, input, interrupt_before: ["tools"] });
  const first = await next();
  await run(thread_id, { ...step, input: null, interrupt_after: ["tools"] });
  const second = await next();
  await run(thread_id, { ...step, input: null });

  assert.deepEqual([first, second, await next()], [["tools"], ["agent"], []]);
});

test("deep-agents-ui: files are written into the state", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  await run(thread_id, { assistant_id: "steps", input: {} });

  await readJson("POST", `/threads/${thread_id}/state`, { values: { seen: { "a.txt": "text" } } });

  const { values } = await readJson("GET", `/threads/${thread_id}/state`);
  assert.deepEqual(values.seen, { "a.txt": "text" });
});

test("deep-agents-ui: after a reload the stream is read from the start", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const { response, text } = await run(thread_id, { assistant_id: "chat", input: userMessage("words 9") });
  const location = response.headers.get("content-location");

  const replay = await request("GET", `${location}/stream`, undefined, { "last-event-id": "-1" });

  assert.equal(replay.status, 200);
  assert.equal(await replay.text(), text);
});

test("deep-agents-ui: stopping cancels", async () => {
  const { thread_id } = await readJson("POST", "/threads", { metadata: {} });
  const { run_id } = await readJson("POST", `/threads/${thread_id}/runs`, {
    assistant_id: "chat",
    input: userMessage("words 200 every 0.05"),
    ...STREAM,
  });

  const response = await request("POST", `/threads/${thread_id}/runs/${run_id}/cancel?wait=0&action=interrupt`);

  assert.ok([202, 204].includes(response.status));
  await waitUntil(
    async () => (await client.runs.get(thread_id, run_id)).status === "interrupted",
    "the cancellation",
  );
});

test("an error response allows other origins", async () => {
  for (const [path, headers] of [
    [`/threads/${crypto.randomUUID()}`, {}],
    ["/info", { "x-api-key": "slip_wrong" }],
    ["/no/such/path", {}],
  ]) {
    const response = await request("GET", path, undefined, headers);

    assert.ok(response.status >= 400);
    assert.ok(["*", ORIGIN].includes(response.headers.get("access-control-allow-origin")), path);
  }
});

test("interrupts of a stream have the fields that useStream reads", async () => {
  const thread = await client.threads.create();
  const chunks = await collect(
    client.runs.stream(thread.thread_id, "react", {
      input: userMessage('call book_hotel {"city": "Oslo"}'),
      streamMode: ["values"],
    }),
  );

  const history = await client.threads.getHistory(thread.thread_id);
  const [streamed] = dataOf(chunks, "values").at(-1).__interrupt__;
  const [stored] = history[0].tasks.at(-1).interrupts;
  assert.deepEqual([streamed.id, streamed.value], [stored.id, stored.value]);
});
