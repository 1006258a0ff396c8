// Traces written and read by the public client: trees, filters, threads, groups, figures.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { Client } from "langsmith";
import { getCurrentRunTree, traceable } from "langsmith/traceable";

const client = new Client({
  apiUrl: process.env.API_URL,
  apiKey: process.env.API_KEY,
  callerOptions: { maxRetries: 0 },
});
const projectName = `sdk javascript ${crypto.randomUUID()}`;
const config = { client, project_name: projectName, tracingEnabled: true };
const found = {};

async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

const sorted = (runs) => runs.map(({ name }) => name).sort();
const list = (props) => collect(client.listRuns({ projectName, ...props }));

before(async () => {
  const lookUp = traceable(async () => { throw new Error("cannot look up"); }, {
    ...config, name: "look up", run_type: "tool",
  });
  const model = traceable(
    async () => ({
      answer: "because",
      usage_metadata: { input_tokens: 10, output_tokens: 1, total_tokens: 11 },
    }),
    { ...config, name: "model", run_type: "llm" },
  );
  const agent = (thread, works) =>
    traceable(
      async (question) => {
        const { id } = getCurrentRunTree();
        if (works) {
          await lookUp(question).catch(() => null);
          await model(question);
        }
        return { id };
      },
      { ...config, name: "agent", metadata: { thread_id: thread }, tags: [`in ${thread}`] },
    );
  found.first = (await agent("t-1", true)("why?")).id;
  found.second = (await agent("t-1", false)("and then?")).id;
  // Its clock has milliseconds: two traces of one of them have no order.
  for (const now = Date.now(); Date.now() === now; ) await null;
  found.other = (await agent("t-2", false)("xylograph?")).id;
  await client.awaitPendingTraceBatches();
  found.project = await client.readProject({ projectName });
});

after(async () => {
  await client.deleteProject({ projectName });
});

test("a tree comes back as it was traced", async () => {
  const run = await client.readRun(found.first, { loadChildRuns: true });

  assert.deepEqual(sorted(run.child_runs), ["look up", "model"]);
  assert.deepEqual([run.status, run.total_tokens], ["success", 11]);
  assert.equal(run.child_runs.find(({ name }) => name === "look up").status, "error");
});

test("runs are listed by filters", async () => {
  assert.deepEqual(sorted(await list()), ["agent", "agent", "agent", "look up", "model"]);
  assert.deepEqual(sorted(await list({ isRoot: true })), ["agent", "agent", "agent"]);
  assert.deepEqual(sorted(await list({ error: true })), ["look up"]);
  assert.deepEqual(sorted(await list({ runType: "llm" })), ["model"]);
  assert.deepEqual(sorted(await list({ filter: "gt(total_tokens, 10)" })), ["agent", "model"]);
  assert.deepEqual(sorted(await list({ filter: 'search("xylograph")' })), ["agent"]);
  assert.deepEqual(sorted(await list({ treeFilter: 'eq(name, "model")', isRoot: true })), [
    "agent",
  ]);
  assert.deepEqual(sorted(await list({ traceId: found.first, runType: "tool" })), ["look up"]);
  assert.equal((await list({ limit: 2 })).length, 2);
});

test("a thread is read in its order", async () => {
  const turns = await collect(client.readThread({ threadId: "t-1", projectName }));

  assert.deepEqual(turns.map(({ id }) => id), [found.first, found.second]);
});

test("threads are listed with their runs", async () => {
  const threads = await client.listThreads({ projectName });

  const counts = Object.fromEntries(threads.map((one) => [one.thread_id, one.runs.length]));
  assert.deepEqual(counts, { "t-1": 2, "t-2": 1 });
});

test("runs are grouped by conversation", async () => {
  const groups = await collect(client.listGroupRuns({ projectName, groupBy: "conversation" }));

  const counts = Object.fromEntries(groups.map((one) => [one.group_key, one.count]));
  assert.deepEqual(counts, { "t-1": 2, "t-2": 1 });
});

test("figures tell what the project holds", async () => {
  const stats = await client.getRunStats({ projectNames: [projectName] });
  const project = await client.readProject({ projectName, includeStats: true });

  assert.deepEqual([stats.run_count, stats.total_tokens], [5, 11]);
  assert.deepEqual([project.run_count, project.total_tokens], [5, 11]);
});

test("the address of a run is told", async () => {
  const url = await client.getRunUrl({ runId: found.first });

  assert.match(url, new RegExp(`/projects/p/${found.project.id}/r/${found.first}`));
});

test("a run is shared, read and unshared", async () => {
  const url = await client.shareRun(found.first);

  assert.equal(await client.readRunSharedLink(found.first), url);
  const token = url.split("/public/")[1].split("/")[0];
  // `listSharedRuns` of this version asks for an address that has lost its question mark.
  const { items } = await client.public.runs.query(token, { selects: ["NAME"] });
  assert.deepEqual(sorted(items), ["agent", "look up", "model"]);
  await client.unshareRun(found.first);
  assert.equal(await client.readRunSharedLink(found.first), undefined);
});

test("feedback is given, listed, changed and taken back", async () => {
  const given = await client.createFeedback(found.second, "helpful", { score: 0.5 });
  await client.updateFeedback(given.id, { score: 0.75, comment: "better" });

  const [listed] = await collect(client.listFeedback({ runIds: [found.second] }));

  assert.deepEqual([listed.score, listed.comment], [0.75, "better"]);
  const run = await client.readRun(found.second);
  assert.equal(run.feedback_stats.helpful.avg, 0.75);
  await client.deleteFeedback(given.id);
  assert.deepEqual(await collect(client.listFeedback({ runIds: [found.second] })), []);
});

test("a project is made, changed, listed and deleted", async () => {
  const name = `sdk ${crypto.randomUUID()}`;
  const made = await client.createProject({ projectName: name, metadata: { a: 1 } });
  await client.updateProject(made.id, { description: "changed" });

  const read = await client.readProject({ projectId: made.id });
  const listed = await collect(client.listProjects({ name }));

  assert.deepEqual([read.description, read.extra.metadata.a], ["changed", 1]);
  assert.deepEqual(listed.map(({ id }) => id), [made.id]);
  await client.deleteProject({ projectId: made.id });
  assert.equal(await client.hasProject({ projectName: name }), false);
});

test("runs are queried in the second version", async () => {
  const project_ids = [found.project.id];
  const selects = ["NAME", "STATUS", "TOTAL_TOKENS"];
  const runs = await collect(client.runs.queryV2({ project_ids, selects, page_size: 2 }));

  assert.deepEqual(sorted(runs), ["agent", "agent", "agent", "look up", "model"]);
  assert.equal(runs.find(({ name }) => name === "look up").status, "ERROR");
  const one = await client.runs.retrieveV2(found.first, {
    project_id: found.project.id, selects: ["NAME", "THREAD_ID"],
  });
  assert.deepEqual([one.id, one.name, one.thread_id], [found.first, "agent", "t-1"]);
});

test("traces and threads are queried in the second version", async () => {
  const project_id = found.project.id;
  const traces = await collect(
    client.traces.query({ project_id, selects: ["TOTAL_TOKENS"], page_size: 2 }),
  );
  const threads = await collect(client.threads.query({ project_id, page_size: 1 }));
  const turns = await collect(
    client.threads.listTraces("t-1", { project_id, selects: ["TRACE_ID"], page_size: 1 }),
  );

  assert.deepEqual(traces.map(({ root_run }) => root_run.id), [
    found.other, found.second, found.first,
  ]);
  assert.equal(traces[2].trace_aggregates.total_tokens, 11);
  assert.deepEqual(threads.map((one) => [one.thread_id, one.count]), [["t-2", 1], ["t-1", 2]]);
  assert.deepEqual(turns.map((one) => one.trace_id), [found.second, found.first]);
});

test("what is not there and what makes no sense are refused", async () => {
  await assert.rejects(client.readRun(crypto.randomUUID()), { status: 404 });
  await assert.rejects(list({ filter: "eq(" }), /column/);
  await assert.rejects(client.createProject({ projectName }), { status: 409 });
});
