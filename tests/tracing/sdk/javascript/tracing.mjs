// Traces written and read by the public client: trees, filters, threads, groups, statistics.
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
const ids = {};

async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

const sortedNames = (runs) => runs.map(({ name }) => name).sort();
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
  const agent = (thread, hasChildren) =>
    traceable(
      async (question) => {
        const { id } = getCurrentRunTree();
        if (hasChildren) {
          await lookUp(question).catch(() => null);
          await model(question);
        }
        return { id };
      },
      { ...config, name: "agent", metadata: { thread_id: thread }, tags: [`in ${thread}`] },
    );
  ids.first = (await agent("t-1", true)("why?")).id;
  ids.second = (await agent("t-1", false)("and then?")).id;
  // The clock counts milliseconds: two traces of one millisecond have no order.
  for (const now = Date.now(); Date.now() === now; ) await null;
  ids.other = (await agent("t-2", false)("xylograph?")).id;
  await client.awaitPendingTraceBatches();
  ids.project = await client.readProject({ projectName });
});

after(async () => {
  await client.deleteProject({ projectName });
});

test("a tree is read back as it was traced", async () => {
  const run = await client.readRun(ids.first, { loadChildRuns: true });

  assert.deepEqual(sortedNames(run.child_runs), ["look up", "model"]);
  assert.deepEqual([run.status, run.total_tokens], ["success", 11]);
  assert.equal(run.child_runs.find(({ name }) => name === "look up").status, "error");
});

test("runs are listed by filters", async () => {
  assert.deepEqual(sortedNames(await list()), ["agent", "agent", "agent", "look up", "model"]);
  assert.deepEqual(sortedNames(await list({ isRoot: true })), ["agent", "agent", "agent"]);
  assert.deepEqual(sortedNames(await list({ error: true })), ["look up"]);
  assert.deepEqual(sortedNames(await list({ runType: "llm" })), ["model"]);
  assert.deepEqual(sortedNames(await list({ filter: "gt(total_tokens, 10)" })), ["agent", "model"]);
  assert.deepEqual(sortedNames(await list({ filter: 'search("xylograph")' })), ["agent"]);
  assert.deepEqual(sortedNames(await list({ treeFilter: 'eq(name, "model")', isRoot: true })), [
    "agent",
  ]);
  assert.deepEqual(sortedNames(await list({ traceId: ids.first, runType: "tool" })), ["look up"]);
  assert.equal((await list({ limit: 2 })).length, 2);
});

test("the turns of a thread are read in order", async () => {
  const turns = await collect(client.readThread({ threadId: "t-1", projectName }));

  assert.deepEqual(turns.map(({ id }) => id), [ids.first, ids.second]);
});

test("threads are listed with their runs", async () => {
  const threads = await client.listThreads({ projectName });

  const counts = Object.fromEntries(threads.map((row) => [row.thread_id, row.runs.length]));
  assert.deepEqual(counts, { "t-1": 2, "t-2": 1 });
});

test("runs are grouped by conversation", async () => {
  const groups = await collect(client.listGroupRuns({ projectName, groupBy: "conversation" }));

  const counts = Object.fromEntries(groups.map((row) => [row.group_key, row.count]));
  assert.deepEqual(counts, { "t-1": 2, "t-2": 1 });
});

test("statistics count the runs of the project", async () => {
  const stats = await client.getRunStats({ projectNames: [projectName] });
  const project = await client.readProject({ projectName, includeStats: true });

  assert.deepEqual([stats.run_count, stats.total_tokens], [5, 11]);
  assert.deepEqual([project.run_count, project.total_tokens], [5, 11]);
});

test("the url of a run names its project", async () => {
  const url = await client.getRunUrl({ runId: ids.first });

  assert.match(url, new RegExp(`/projects/p/${ids.project.id}/r/${ids.first}`));
});

test("a run is shared, read and unshared", async () => {
  const url = await client.shareRun(ids.first);

  assert.equal(await client.readRunSharedLink(ids.first), url);
  const token = url.split("/public/")[1].split("/")[0];
  // `listSharedRuns` of this version requests a URL without its question mark.
  const { items } = await client.public.runs.query(token, { selects: ["NAME"] });
  assert.deepEqual(sortedNames(items), ["agent", "look up", "model"]);
  await client.unshareRun(ids.first);
  assert.equal(await client.readRunSharedLink(ids.first), undefined);
});

test("feedback is created, listed, changed and deleted", async () => {
  const feedback = await client.createFeedback(ids.second, "helpful", { score: 0.5 });
  await client.updateFeedback(feedback.id, { score: 0.75, comment: "better" });

  const [listed] = await collect(client.listFeedback({ runIds: [ids.second] }));

  assert.deepEqual([listed.score, listed.comment], [0.75, "better"]);
  const run = await client.readRun(ids.second);
  assert.equal(run.feedback_stats.helpful.avg, 0.75);
  await client.deleteFeedback(feedback.id);
  assert.deepEqual(await collect(client.listFeedback({ runIds: [ids.second] })), []);
});

test("a project is created, changed, listed and deleted", async () => {
  const name = `sdk ${crypto.randomUUID()}`;
  const created = await client.createProject({ projectName: name, metadata: { a: 1 } });
  await client.updateProject(created.id, { description: "changed" });

  const read = await client.readProject({ projectId: created.id });
  const listed = await collect(client.listProjects({ name }));

  assert.deepEqual([read.description, read.extra.metadata.a], ["changed", 1]);
  assert.deepEqual(listed.map(({ id }) => id), [created.id]);
  await client.deleteProject({ projectId: created.id });
  assert.equal(await client.hasProject({ projectName: name }), false);
});

test("runs are queried with API v2", async () => {
  const project_ids = [ids.project.id];
  const selects = ["NAME", "STATUS", "TOTAL_TOKENS"];
  const runs = await collect(client.runs.queryV2({ project_ids, selects, page_size: 2 }));

  assert.deepEqual(sortedNames(runs), ["agent", "agent", "agent", "look up", "model"]);
  assert.equal(runs.find(({ name }) => name === "look up").status, "ERROR");
  const row = await client.runs.retrieveV2(ids.first, {
    project_id: ids.project.id, selects: ["NAME", "THREAD_ID"],
  });
  assert.deepEqual([row.id, row.name, row.thread_id], [ids.first, "agent", "t-1"]);
});

test("traces and threads are queried with API v2", async () => {
  const project_id = ids.project.id;
  const traces = await collect(
    client.traces.query({ project_id, selects: ["TOTAL_TOKENS"], page_size: 2 }),
  );
  const threads = await collect(client.threads.query({ project_id, page_size: 1 }));
  const turns = await collect(
    client.threads.listTraces("t-1", { project_id, selects: ["TRACE_ID"], page_size: 1 }),
  );

  assert.deepEqual(traces.map(({ root_run }) => root_run.id), [
    ids.other, ids.second, ids.first,
  ]);
  assert.equal(traces[2].trace_aggregates.total_tokens, 11);
  assert.deepEqual(threads.map((row) => [row.thread_id, row.count]), [["t-2", 1], ["t-1", 2]]);
  assert.deepEqual(turns.map((row) => row.trace_id), [ids.second, ids.first]);
});

test("missing and malformed requests are rejected", async () => {
  await assert.rejects(client.readRun(crypto.randomUUID()), { status: 404 });
  await assert.rejects(list({ filter: "eq(" }), /column/);
  await assert.rejects(client.createProject({ projectName }), { status: 409 });
});
