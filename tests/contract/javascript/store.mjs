// Section 12: the store, from outside and from a graph.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, refusal } from "./agent.mjs";

/** A namespace of the check's own. */
const place = (...labels) => [crypto.randomUUID(), ...labels];

test("what was put is got, with its times", async () => {
  const namespace = place("facts");
  await client.store.putItem(namespace, "tea", { likes: true });

  const item = await client.store.getItem(namespace, "tea");

  assert.deepEqual([item.namespace, item.key, item.value], [namespace, "tea", { likes: true }]);
  assert.ok(new Date(item.createdAt) <= new Date(item.updatedAt));
});

test("putting again replaces the value and keeps the beginning", async () => {
  const namespace = place();
  await client.store.putItem(namespace, "tea", { cups: 1 });
  const first = await client.store.getItem(namespace, "tea");

  await client.store.putItem(namespace, "tea", { pots: 2 });

  const second = await client.store.getItem(namespace, "tea");
  assert.deepEqual(second.value, { pots: 2 });
  assert.equal(second.createdAt, first.createdAt);
  assert.ok(second.updatedAt > first.updatedAt);
});

test("a missing item is null, and asking leaves nothing behind", async () => {
  const namespace = place();

  assert.equal(await client.store.getItem(namespace, "tea"), null);

  const { namespaces } = await client.store.listNamespaces({ prefix: namespace });
  assert.deepEqual(namespaces, []);
});

test("a deleted item is gone, and deleting again is no error", async () => {
  const namespace = place();
  await client.store.putItem(namespace, "tea", {});

  await client.store.deleteItem(namespace, "tea");
  await client.store.deleteItem(namespace, "tea");

  assert.equal(await client.store.getItem(namespace, "tea"), null);
});

test("a search filters, and pages", async () => {
  const namespace = place();
  for (const [key, cups] of Object.entries({ a: 1, b: 2, c: 3 })) {
    await client.store.putItem([...namespace, key], key, { cups });
  }

  const many = await client.store.searchItems(namespace, { filter: { cups: { $gte: 2 } } });
  const one = await client.store.searchItems(namespace, { filter: { cups: 1 } });
  const page = await client.store.searchItems(namespace, { limit: 2, offset: 2 });

  assert.deepEqual(many.items.map(({ key }) => key).sort(), ["b", "c"]);
  assert.deepEqual(one.items.map(({ key }) => key), ["a"]);
  assert.equal(page.items.length, 1);
});

test("an operator that is not known is refused", async () => {
  const error = await refusal(client.store.searchItems(place(), { filter: { a: { $near: 1 } } }));

  assert.equal(error.status, 400);
});

test("namespaces are listed by beginning, end and depth", async () => {
  const root = place();
  for (const path of [["ann", "facts"], ["bob", "facts"], ["bob", "plans", "old"]]) {
    await client.store.putItem([...root, ...path], "k", {});
  }
  const list = async (options) =>
    (await client.store.listNamespaces(options)).namespaces.map((labels) =>
      labels.slice(1).join("/"),
    );

  assert.deepEqual(await list({ prefix: root }), ["ann/facts", "bob/facts", "bob/plans/old"]);
  assert.deepEqual(await list({ prefix: root, suffix: ["facts"] }), ["ann/facts", "bob/facts"]);
  assert.deepEqual(await list({ prefix: [...root, "*", "plans"] }), ["bob/plans/old"]);
  assert.deepEqual(await list({ prefix: root, maxDepth: 2 }), ["ann", "bob"]);
});

test("a graph sees what a client put, and the other way round", async () => {
  const user = crypto.randomUUID();
  await client.store.putItem(["memories", user], "tea", { text: "likes tea" });

  const { memories } = await client.runs.wait(null, "memory", {
    input: { user, remember: { key: "cat", text: "has a cat" } },
  });

  const item = await client.store.getItem(["memories", user], "cat");
  assert.deepEqual(memories.sort(), [["cat", "has a cat"], ["tea", "likes tea"]]);
  assert.deepEqual(item.value, { text: "has a cat" });
});

test("the memory of one thread is there in another", async () => {
  const user = crypto.randomUUID();
  const remember = { key: "tea", text: "likes tea" };
  await client.runs.wait(null, "memory", { input: { user, remember } });

  const { memories } = await client.runs.wait(null, "memory", { input: { user } });

  assert.deepEqual(memories, [["tea", "likes tea"]]);
});

test("an expiry is accepted, and null takes it away", async () => {
  const namespace = place();

  await client.store.putItem(namespace, "tea", {}, { ttl: 60 });
  await client.store.putItem(namespace, "tea", {}, { ttl: null });

  const item = await client.store.getItem(namespace, "tea", { refreshTtl: true });
  assert.equal(item.key, "tea");
});

test("a label with a period never leaves the client", async () => {
  const error = await refusal(client.store.putItem(["a.b"], "k", {}));

  assert.match(error.message, /cannot contain periods/);
});

test("an empty namespace is refused", async () => {
  assert.equal((await refusal(client.store.putItem([], "k", {}))).status, 400);
});
