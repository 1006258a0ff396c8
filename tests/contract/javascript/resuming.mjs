// Sections 9.7 and 9.8: joining and resuming streams, and streams of threads.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, connect, newThread, dataOf, rejection, userMessage, startSlow, waitUntil } from "./agent.mjs";

async function resumable(graph = "chat", input = userMessage("words 20"), streamMode = ["messages-tuple"]) {
  const thread = await newThread();
  const chunks = await collect(
    client.runs.stream(thread, graph, { input, streamMode, streamResumable: true }),
  );
  return { thread, run: chunks[0].data.run_id, chunks };
}

/** Return a client, and a promise that resolves when its next request has a response. */
function observedClient() {
  let resolveOpened;
  const opened = new Promise((resolve) => {
    resolveOpened = resolve;
  });
  const notifyingFetch = async (...request) => {
    const response = await fetch(...request);
    resolveOpened();
    return response;
  };
  return { client: connect({ caller: { fetch: notifyingFetch } }), opened };
}

const ids = (chunks) => chunks.map(({ id }) => id);

test("the events of a resumable run have unique increasing ids", async () => {
  const { chunks } = await resumable();

  const order = ids(chunks).map((id) => id.split("-").map(Number));
  assert.equal(new Set(ids(chunks)).size, chunks.length);
  assert.deepEqual(
    order.toSorted((a, b) => a[0] - b[0] || a[1] - b[1]),
    order,
  );
});

test("events of a run that is not resumable have no id", async () => {
  const chunks = await collect(client.runs.stream(await newThread(), "steps", { input: {} }));

  assert.deepEqual([...new Set(ids(chunks))], [undefined]);
});

test("last event id -1 replays all events", async () => {
  const { thread, run, chunks } = await resumable();

  const again = await collect(client.runs.joinStream(thread, run, { lastEventId: "-1" }));

  assert.deepEqual(again, chunks);
});

test("a resumed stream continues after the given event", async () => {
  const { thread, run, chunks } = await resumable();

  for (const index of [0, 4, chunks.length - 2]) {
    const rest = await collect(
      client.runs.joinStream(thread, run, { lastEventId: chunks[index].id }),
    );
    assert.deepEqual(ids(rest), ids(chunks.slice(index + 1)));
  }
});

test("a join selects one of several modes, given as text or list", async () => {
  const { thread, run, chunks } = await resumable("steps", {}, ["values", "updates"]);

  for (const streamMode of ["updates", ["updates"]]) {
    const again = await collect(
      client.runs.joinStream(thread, run, { lastEventId: "-1", streamMode }),
    );
    assert.deepEqual(dataOf(again, "updates"), dataOf(chunks, "updates"));
    assert.deepEqual(dataOf(again, "values"), []);
  }
});

test("joining a running run streams the following events", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "chat", {
    input: userMessage("words 40 every 0.03"),
    streamMode: ["messages-tuple"],
  });
  await waitUntil(async () => (await client.runs.get(thread, run.run_id)).status === "running");

  const chunks = await collect(client.runs.joinStream(thread, run.run_id));

  const whole = Array.from({ length: 40 }, (_, n) => `word${n}`).join(" ");
  const pieces = dataOf(chunks, "messages").map(([message]) => message.content);
  assert.ok(pieces.length > 5);
  assert.ok(whole.endsWith(pieces.join("")));
});

test("a finished run that is not resumable has an empty stream", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "steps", { input: {} });
  await client.runs.join(thread, run.run_id);

  const chunks = await collect(client.runs.joinStream(thread, run.run_id));

  assert.deepEqual(
    chunks.filter(({ event }) => event !== "end"),
    [],
  );
});

/**
 * Return a client whose first event stream breaks off after some bytes, once `collectEvents` has an event:
 * the error discards what the client has not read, and without an event there is no id to resume from.
 */
function unreliableClient(bytes) {
  const calls = [];
  let confirmEvent;
  const firstEvent = new Promise((resolve) => (confirmEvent = resolve));
  const cuttingFetch = async (address, init) => {
    calls.push({ address, lastEventId: new Headers(init.headers).get("last-event-id") });
    const response = await fetch(address, init);
    if (calls.length > 1) return response;
    const reader = response.body.getReader();
    let left = bytes;
    const cut = new ReadableStream(
      {
        async pull(controller) {
          const { done, value } = left > 0 ? await reader.read() : { done: true };
          if (done) {
            await firstEvent;
            // Without it the connection stays open until the server's time limit, and so does this process.
            await reader.cancel();
            return controller.error(new TypeError("network error"));
          }
          controller.enqueue(value.subarray(0, left));
          left -= value.length;
        },
        cancel: (reason) => reader.cancel(reason),
      },
      { highWaterMark: 0 },
    );
    return new Response(cut, response);
  };
  const collectEvents = async (stream) => {
    const chunks = [];
    for await (const chunk of stream) {
      chunks.push(chunk);
      confirmEvent();
    }
    return chunks;
  };
  return { calls, client: connect({ caller: { fetch: cuttingFetch } }), collectEvents };
}

test("a broken connection is resumed without a gap or repetition", async () => {
  const thread = await newThread();
  const { client: unreliable, calls, collectEvents } = unreliableClient(1500);

  const chunks = await collectEvents(
    unreliable.runs.stream(thread, "chat", {
      input: userMessage("words 60 every 0.005"),
      streamMode: ["messages-tuple"],
      streamResumable: true,
    }),
  );

  const text = dataOf(chunks, "messages").map(([message]) => message.content);
  assert.equal(calls.length, 2);
  assert.match(calls[1].lastEventId, /^\d+-\d+$/);
  assert.equal(text.join(""), Array.from({ length: 60 }, (_, n) => `word${n}`).join(" "));
});

test("the broken stream of a stateless run is resumed", async () => {
  const { client: unreliable, calls, collectEvents } = unreliableClient(1500);

  const chunks = await collectEvents(
    unreliable.runs.stream(null, "chat", {
      input: userMessage("words 60 every 0.005"),
      streamMode: ["messages-tuple"],
      streamResumable: true,
    }),
  );

  const text = dataOf(chunks, "messages").map(([message]) => message.content);
  assert.equal(calls.length, 2);
  assert.equal(text.join(""), Array.from({ length: 60 }, (_, n) => `word${n}`).join(" "));
});

test("a stateless run is joined by its id", async () => {
  const run = await client.runs.create(null, "slow", {
    input: { seconds: 0.5 },
    streamMode: ["values"],
    streamResumable: true,
  });

  const chunks = await collect(
    client.runs.joinStream(null, run.run_id, { lastEventId: "-1" }),
  );

  assert.equal(dataOf(chunks, "values").at(-1).done, 1);
});

test("closing a joined stream cancels the run on request", async () => {
  const thread = await newThread();
  const run = await startSlow(thread);
  const controller = new AbortController();
  const observed = observedClient();

  const joined = collect(
    observed.client.runs.joinStream(thread, run.run_id, {
      cancelOnDisconnect: true,
      signal: controller.signal,
    }),
  );
  await observed.opened;
  controller.abort();

  await joined.catch(() => {});
  await waitUntil(
    async () => (await client.runs.get(thread, run.run_id)).status === "interrupted",
    "the cancellation",
  );
});

test("closing a joined stream continues the run by default", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "slow", { input: { seconds: 0.5 } });
  const controller = new AbortController();
  const observed = observedClient();

  const joined = collect(
    observed.client.runs.joinStream(thread, run.run_id, { signal: controller.signal }),
  );
  await observed.opened;
  controller.abort();

  await joined.catch(() => {});
  await client.runs.join(thread, run.run_id);
  assert.equal((await client.runs.get(thread, run.run_id)).status, "success");
});

test("joining an unknown run is an error", async () => {
  const thread = await newThread();
  const unknown = "01a20000-0000-7000-8000-000000000000";

  const chunks = await collect(client.runs.joinStream(thread, unknown)).catch((error) => error);

  const message = Array.isArray(chunks) ? chunks[0].data.message : `404: ${chunks.status}`;
  assert.match(message, /404/);
});

/** Collect the events of a thread, while `act` runs, until `enough` is satisfied. */
async function collectThreadStream(thread, options, act, enough) {
  const controller = new AbortController();
  const chunks = [];
  const observed = observedClient();
  const collecting = (async () => {
    for await (const chunk of observed.client.threads.joinStream(thread, {
      ...options,
      signal: controller.signal,
    })) {
      chunks.push(chunk);
      if (enough(chunks)) controller.abort();
    }
  })().catch((error) => {
    if (!controller.signal.aborted) throw error;
  });
  await Promise.race([observed.opened, collecting]);
  await act();
  await collecting;
  return chunks;
}

const done = (count) => (chunks) =>
  dataOf(chunks, "metadata").filter(({ status }) => status === "run_done").length === count;

test("the stream of a thread has the events of all its runs", async () => {
  const thread = await newThread();
  const seen = [];

  const chunks = await collectThreadStream(
    thread,
    {},
    async () => {
      for (const _ of [1, 2]) {
        const run = await client.runs.create(thread, "steps", { input: {}, streamMode: "values" });
        seen.push(run.run_id);
      }
    },
    done(2),
  );

  assert.deepEqual(
    dataOf(chunks, "metadata")
      .filter(({ status }) => status === "run_done")
      .map(({ run_id }) => run_id),
    seen,
  );
  assert.equal(dataOf(chunks, "values").at(-1).count, 6);
});

test("the lifecycle stream of a thread has the start and end of a run", async () => {
  const thread = await newThread();

  const chunks = await collectThreadStream(
    thread,
    { streamMode: ["lifecycle"] },
    () => client.runs.create(thread, "steps", { input: {} }),
    done(1),
  );

  assert.deepEqual(
    chunks.map(({ event }) => event),
    ["metadata", "metadata"],
  );
});

test("the stream of a thread has state updates of other clients", async () => {
  const thread = await newThread({ graphId: "steps" });

  const chunks = await collectThreadStream(
    thread,
    { streamMode: ["state_update"] },
    () => client.threads.updateState(thread, { values: { notes: ["by hand"] }, asNode: "plan" }),
    (all) => all.length === 1,
  );

  assert.equal(chunks[0].event, "state_update");
  assert.deepEqual(chunks[0].data.state.values.notes, ["by hand"]);
});

test("the stream of a missing thread is 404", async () => {
  const unknown = "01a20000-0000-7000-8000-000000000000";

  const error = await rejection(collect(client.threads.joinStream(unknown)));

  assert.equal(error.status, 404);
});
