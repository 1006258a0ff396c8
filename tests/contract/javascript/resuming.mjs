// Sections 9.7 and 9.8: joining, taking up again, and listening to a thread.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, collect, connect, newThread, of, refusal, say, startSlow, until } from "./agent.mjs";

async function resumable(graph = "chat", input = say("words 20"), streamMode = ["messages-tuple"]) {
  const thread = await newThread();
  const chunks = await collect(
    client.runs.stream(thread, graph, { input, streamMode, streamResumable: true }),
  );
  return { thread, run: chunks[0].data.run_id, chunks };
}

/** A client, and the promise that its next request is answered. */
function listener() {
  let tell;
  const opened = new Promise((resolve) => {
    tell = resolve;
  });
  const telling = async (...request) => {
    const response = await fetch(...request);
    tell();
    return response;
  };
  return { client: connect({ caller: { fetch: telling } }), opened };
}

const ids = (chunks) => chunks.map(({ id }) => id);

test("every event of a resumable run has an id of its own, in order", async () => {
  const { chunks } = await resumable();

  const order = ids(chunks).map((id) => id.split("-").map(Number));
  assert.equal(new Set(ids(chunks)).size, chunks.length);
  assert.deepEqual(
    order.toSorted((a, b) => a[0] - b[0] || a[1] - b[1]),
    order,
  );
});

test("events of other runs have no id", async () => {
  const chunks = await collect(client.runs.stream(await newThread(), "steps", { input: {} }));

  assert.deepEqual([...new Set(ids(chunks))], [undefined]);
});

test("-1 brings everything again", async () => {
  const { thread, run, chunks } = await resumable();

  const again = await collect(client.runs.joinStream(thread, run, { lastEventId: "-1" }));

  assert.deepEqual(again, chunks);
});

test("after an id comes exactly what followed it", async () => {
  const { thread, run, chunks } = await resumable();

  for (const place of [0, 4, chunks.length - 2]) {
    const rest = await collect(
      client.runs.joinStream(thread, run, { lastEventId: chunks[place].id }),
    );
    assert.deepEqual(ids(rest), ids(chunks.slice(place + 1)));
  }
});

test("one mode of several may be joined, given as text or as a list", async () => {
  const { thread, run, chunks } = await resumable("steps", {}, ["values", "updates"]);

  for (const streamMode of ["updates", ["updates"]]) {
    const again = await collect(
      client.runs.joinStream(thread, run, { lastEventId: "-1", streamMode }),
    );
    assert.deepEqual(of(again, "updates"), of(chunks, "updates"));
    assert.deepEqual(of(again, "values"), []);
  }
});

test("a live run is joined where it is", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "chat", {
    input: say("words 40 every 0.03"),
    streamMode: ["messages-tuple"],
  });
  await until(async () => (await client.runs.get(thread, run.run_id)).status === "running");

  const chunks = await collect(client.runs.joinStream(thread, run.run_id));

  const whole = Array.from({ length: 40 }, (_, n) => `word${n}`).join(" ");
  const heard = of(chunks, "messages").map(([message]) => message.content);
  assert.ok(heard.length > 5);
  assert.ok(whole.endsWith(heard.join("")));
});

test("a finished run that keeps nothing has an empty stream", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "steps", { input: {} });
  await client.runs.join(thread, run.run_id);

  const chunks = await collect(client.runs.joinStream(thread, run.run_id));

  assert.deepEqual(
    chunks.filter(({ event }) => event !== "end"),
    [],
  );
});

/** A fetch that cuts the first event stream off after some bytes, as a bad network does. */
function cutting(bytes) {
  const calls = [];
  const impatient = async (address, init) => {
    calls.push({ address, lastEventId: new Headers(init.headers).get("last-event-id") });
    const response = await fetch(address, init);
    if (calls.length > 1) return response;
    let left = bytes;
    const cut = new TransformStream({
      transform(chunk, controller) {
        controller.enqueue(chunk.subarray(0, left));
        left -= chunk.length;
        if (left <= 0) controller.error(new TypeError("network error"));
      },
    });
    return new Response(response.body.pipeThrough(cut), response);
  };
  return { calls, client: connect({ caller: { fetch: impatient } }) };
}

test("a broken connection is taken up without a gap and without a repetition", async () => {
  const thread = await newThread();
  const { client: shaky, calls } = cutting(1500);

  const chunks = await collect(
    shaky.runs.stream(thread, "chat", {
      input: say("words 60 every 0.005"),
      streamMode: ["messages-tuple"],
      streamResumable: true,
    }),
  );

  const text = of(chunks, "messages").map(([message]) => message.content);
  assert.equal(calls.length, 2);
  assert.match(calls[1].lastEventId, /^\d+-\d+$/);
  assert.equal(text.join(""), Array.from({ length: 60 }, (_, n) => `word${n}`).join(" "));
});

test("the stream of a run without a thread is taken up as well", async () => {
  const { client: shaky, calls } = cutting(1500);

  const chunks = await collect(
    shaky.runs.stream(null, "chat", {
      input: say("words 60 every 0.005"),
      streamMode: ["messages-tuple"],
      streamResumable: true,
    }),
  );

  const text = of(chunks, "messages").map(([message]) => message.content);
  assert.equal(calls.length, 2);
  assert.equal(text.join(""), Array.from({ length: 60 }, (_, n) => `word${n}`).join(" "));
});

test("a run without a thread is joined by its id alone", async () => {
  const run = await client.runs.create(null, "slow", {
    input: { seconds: 0.5 },
    streamMode: ["values"],
    streamResumable: true,
  });

  const chunks = await collect(
    client.runs.joinStream(null, run.run_id, { lastEventId: "-1" }),
  );

  assert.equal(of(chunks, "values").at(-1).done, 1);
});

test("leaving a joined stream may cancel the run", async () => {
  const thread = await newThread();
  const run = await startSlow(thread);
  const leaving = new AbortController();
  const ear = listener();

  const joined = collect(
    ear.client.runs.joinStream(thread, run.run_id, {
      cancelOnDisconnect: true,
      signal: leaving.signal,
    }),
  );
  await ear.opened;
  leaving.abort();

  await joined.catch(() => {});
  await until(
    async () => (await client.runs.get(thread, run.run_id)).status === "interrupted",
    "the cancelling",
  );
});

test("leaving a joined stream does nothing else", async () => {
  const thread = await newThread();
  const run = await client.runs.create(thread, "slow", { input: { seconds: 0.5 } });
  const leaving = new AbortController();
  const ear = listener();

  const joined = collect(
    ear.client.runs.joinStream(thread, run.run_id, { signal: leaving.signal }),
  );
  await ear.opened;
  leaving.abort();

  await joined.catch(() => {});
  await client.runs.join(thread, run.run_id);
  assert.equal((await client.runs.get(thread, run.run_id)).status, "success");
});

test("an unknown run has no stream", async () => {
  const thread = await newThread();
  const unknown = "01a20000-0000-7000-8000-000000000000";

  const chunks = await collect(client.runs.joinStream(thread, unknown)).catch((error) => error);

  const said = Array.isArray(chunks) ? chunks[0].data.message : `404: ${chunks.status}`;
  assert.match(said, /404/);
});

/** Everything that a thread says until `enough` is satisfied. */
async function listen(thread, options, act, enough) {
  const leaving = new AbortController();
  const chunks = [];
  const ear = listener();
  const listening = (async () => {
    for await (const chunk of ear.client.threads.joinStream(thread, {
      ...options,
      signal: leaving.signal,
    })) {
      chunks.push(chunk);
      if (enough(chunks)) leaving.abort();
    }
  })().catch((error) => {
    if (!leaving.signal.aborted) throw error;
  });
  await Promise.race([ear.opened, listening]);
  await act();
  await listening;
  return chunks;
}

const done = (count) => (chunks) =>
  of(chunks, "metadata").filter(({ status }) => status === "run_done").length === count;

test("a thread's stream goes on over its runs", async () => {
  const thread = await newThread();
  const seen = [];

  const chunks = await listen(
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
    of(chunks, "metadata")
      .filter(({ status }) => status === "run_done")
      .map(({ run_id }) => run_id),
    seen,
  );
  assert.equal(of(chunks, "values").at(-1).count, 6);
});

test("a thread's stream may tell only of beginnings and ends", async () => {
  const thread = await newThread();

  const chunks = await listen(
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

test("a thread's stream tells of updates from outside", async () => {
  const thread = await newThread({ graphId: "steps" });

  const chunks = await listen(
    thread,
    { streamMode: ["state_update"] },
    () => client.threads.updateState(thread, { values: { notes: ["by hand"] }, asNode: "plan" }),
    (all) => all.length === 1,
  );

  assert.equal(chunks[0].event, "state_update");
  assert.deepEqual(chunks[0].data.state.values.notes, ["by hand"]);
});

test("a thread that is not there has no stream", async () => {
  const unknown = "01a20000-0000-7000-8000-000000000000";

  const error = await refusal(collect(client.threads.joinStream(unknown)));

  assert.equal(error.status, 404);
});
