// Section 3: assistants, their versions and their graphs.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, newThread, rejection } from "./agent.mjs";

const newMark = () => crypto.randomUUID();
const STEPS = "01d10e59-d4b4-51ec-8e94-9b2716b34de8"; // UUIDv5 of "steps" in the fixed namespace

test("each graph has an assistant whose id follows from its name", async () => {
  const { assistant_id, graph_id, name, metadata, description, version } =
    await client.assistants.get(STEPS);

  assert.deepEqual(
    [assistant_id, graph_id, name, metadata, description, version],
    [STEPS, "steps", "steps", { created_by: "system" }, "Plans, writes and reviews", 1],
  );
});

test("chat UIs find the system assistant", async () => {
  const assistants = await client.assistants.search({ graphId: "steps", limit: 100 });

  const systems = assistants.filter(({ metadata }) => metadata.created_by === "system");
  assert.deepEqual(systems.map(({ assistant_id }) => assistant_id), [STEPS]);
});

test("configuration and context mirror each other", async () => {
  const { config, context } = await client.assistants.create({
    graphId: "context",
    context: { tone: "curt" },
  });

  assert.deepEqual(context, { tone: "curt" });
  assert.deepEqual(config.configurable, { tone: "curt" });
});

test("a run gets the context of its assistant", async () => {
  const { assistant_id } = await client.assistants.create({
    graphId: "context",
    context: { tone: "curt" },
    config: { tags: ["blue"] },
  });

  const { answer, seen } = await client.runs.wait(null, assistant_id, { input: {} });

  assert.equal(answer, "curt 3");
  assert.equal(seen.configurable.assistant_id, assistant_id);
});

test("an update creates a version, and an old version can be activated", async () => {
  const { assistant_id: id } = await client.assistants.create({
    graphId: "context",
    context: { tone: "first" },
    metadata: { a: 1 },
    name: "Tester",
  });
  await client.assistants.update(id, { context: { tone: "second" }, metadata: { b: 2 } });

  const versions = await client.assistants.getVersions(id);
  const back = await client.assistants.setLatest(id, 1);
  const next = await client.assistants.update(id, { description: "third" });

  assert.deepEqual(versions.map(({ version }) => version), [2, 1]);
  assert.deepEqual(versions[0].metadata, { a: 1, b: 2 });
  assert.deepEqual([back.version, back.context], [1, { tone: "first" }]);
  assert.deepEqual([next.version, next.context, next.name], [3, { tone: "first" }, "Tester"]);
});

test("a taken id is a conflict, or returns the existing assistant on request", async () => {
  const assistantId = newMark();
  await client.assistants.create({ assistantId, graphId: "steps", name: "first" });

  const error = await rejection(client.assistants.create({ assistantId, graphId: "steps" }));
  const second = await client.assistants.create({
    assistantId,
    graphId: "steps",
    name: "second",
    ifExists: "do_nothing",
  });

  assert.equal(error.status, 409);
  assert.equal(second.name, "first");
});

test("a search is paged, sorted and limited to selected fields", async () => {
  const team = newMark();
  for (const name of ["Beta", "alpha"]) {
    await client.assistants.create({ graphId: "steps", name, metadata: { team } });
  }
  const query = { metadata: { team }, sortBy: "name", sortOrder: "asc", limit: 1 };

  const first = await client.assistants.search({ ...query, includePagination: true });
  const second = await client.assistants.search({
    ...query,
    offset: Number(first.next),
    select: ["name"],
    includePagination: true,
  });

  assert.equal(first.next, "1");
  assert.equal(second.next, null);
  assert.deepEqual(
    [first.assistants[0].name, second.assistants[0]].map((row) => row.name ?? row).sort(),
    ["Beta", "alpha"],
  );
  assert.deepEqual(Object.keys(second.assistants[0]), ["name"]);
});

test("assistants are counted by metadata, name part and graph", async () => {
  const team = newMark();
  await client.assistants.create({ graphId: "steps", name: "The Writer", metadata: { team } });

  const metadata = { team };
  assert.equal(await client.assistants.count({ metadata }), 1);
  assert.equal(await client.assistants.count({ metadata, name: "writer" }), 1);
  assert.equal(await client.assistants.count({ metadata, graphId: "human" }), 0);
});

test("threads are deleted with their assistant on request", async () => {
  const { assistant_id: id } = await client.assistants.create({ graphId: "steps" });
  const thread = await newThread();
  await client.runs.wait(thread, id, { input: {} });

  await client.assistants.delete(id, { deleteThreads: true });

  assert.equal((await rejection(client.assistants.get(id))).status, 404);
  assert.equal((await rejection(client.threads.get(thread))).status, 404);
});

test("the drawing expands subgraphs on request", async () => {
  const names = async (options) =>
    (await client.assistants.getGraph("nested", options)).nodes.map(({ id }) => id);

  assert.deepEqual(await names(), ["__start__", "plan", "research", "publish", "__end__"]);
  assert.ok((await names({ xray: 1 })).includes("research:search"));
  assert.ok((await names({ xray: true })).includes("research:search:fetch"));
});

test("schemas of an assistant and of its subgraphs are read", async () => {
  const { assistant_id: id } = await client.assistants.create({ graphId: "nested" });

  const { graph_id, state_schema } = await client.assistants.getSchemas(id);
  const subgraphs = await client.assistants.getSubgraphs(id, { recurse: true });

  assert.equal(graph_id, "nested");
  assert.deepEqual(Object.keys(state_schema.properties).sort(), ["ask", "log", "report", "topic"]);
  assert.deepEqual(Object.keys(subgraphs), ["research", "research|search"]);
  assert.ok("pages" in subgraphs["research|search"].state_schema.properties);
});

test("a subgraph is read by its namespace", async () => {
  const { assistant_id: id } = await client.assistants.create({ graphId: "nested" });

  const subgraphs = await client.assistants.getSubgraphs(id, { namespace: "research" });
  const missing = await client.assistants.getSubgraphs(id, { namespace: "missing" });

  assert.deepEqual(Object.keys(subgraphs), ["research"]);
  assert.deepEqual(missing, {});
});

test("the error of an unknown graph names the known graphs", async () => {
  const error = await rejection(client.assistants.create({ graphId: "nothing" }));

  assert.equal(error.status, 404);
  assert.match(error.message, /steps/);
});

test("configuration and context together are rejected", async () => {
  const error = await rejection(
    client.assistants.create({
      graphId: "context",
      context: { tone: "curt" },
      config: { configurable: { tone: "mild" } },
    }),
  );

  assert.equal(error.status, 400);
});

test("an id that is not a UUID is rejected", async () => {
  assert.equal((await rejection(client.assistants.get("steps"))).status, 422);
});
