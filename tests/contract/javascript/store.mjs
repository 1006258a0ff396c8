// Section 12: the store, from outside and from a graph.
import assert from "node:assert/strict";
import { test } from "node:test";
import { client, rejection } from "./agent.mjs";

/** Return a namespace that only one test uses. */
const newNamespace = (...labels) => [crypto.randomUUID(), ...labels];

test("an item is read back with its times", async () => {
  const namespace = newNamespace("facts");
  await client.store.putItem(namespace, "tea", { likes: true });

  const item = await client.store.getItem(namespace, "tea");

  assert.deepEqual([item.namespace, item.key, item.value], [namespace, "tea", { likes: true }]);
  assert.ok(new Date(item.createdAt) <= new Date(item.updatedAt));
});

test("replacing an item keeps its creation time", async () => {
  const namespace = newNamespace();
  await client.store.putItem(namespace, "tea", { cups: 1 });
  const first = await client.store.getItem(namespace, "tea");

  await client.store.putItem(namespace, "tea", { pots: 2 });

  const second = await client.store.getItem(namespace, "tea");
  assert.deepEqual(second.value, { pots: 2 });
  assert.equal(second.createdAt, first.createdAt);
  assert.ok(second.updatedAt > first.updatedAt);
});

test("a missing item is null and creates no namespace", async () => {
  const namespace = newNamespace();

  assert.equal(await client.store.getItem(namespace, "tea"), null);

  const { namespaces } = await client.store.listNamespaces({ prefix: namespace });
  assert.deepEqual(namespaces, []);
});

test("deleting an item twice is no error", async () => {
  const namespace = newNamespace();
  await client.store.putItem(namespace, "tea", {});

  await client.store.deleteItem(namespace, "tea");
  await client.store.deleteItem(namespace, "tea");

  assert.equal(await client.store.getItem(namespace, "tea"), null);
});

test("a search is filtered and paged", async () => {
  const namespace = newNamespace();
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

test("an unknown operator is rejected", async () => {
  const error = await rejection(client.store.searchItems(newNamespace(), { filter: { a: { $near: 1 } } }));

  assert.equal(error.status, 400);
});

test("namespaces are listed by prefix, suffix and depth", async () => {
  const root = newNamespace();
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

test("a graph and a client read each other's items", async () => {
  const user = crypto.randomUUID();
  await client.store.putItem(["memories", user], "tea", { text: "likes tea" });

  const { memories } = await client.runs.wait(null, "memory", {
    input: { user, remember: { key: "cat", text: "has a cat" } },
  });

  const item = await client.store.getItem(["memories", user], "cat");
  assert.deepEqual(memories.sort(), [["cat", "has a cat"], ["tea", "likes tea"]]);
  assert.deepEqual(item.value, { text: "has a cat" });
});

test("an item of one thread is read in another", async () => {
  const user = crypto.randomUUID();
  const remember = { key: "tea", text: "likes tea" };
  await client.runs.wait(null, "memory", { input: { user, remember } });

  const { memories } = await client.runs.wait(null, "memory", { input: { user } });

  assert.deepEqual(memories, [["tea", "likes tea"]]);
});

test("a ttl is accepted, and null clears it", async () => {
  const namespace = newNamespace();

  await client.store.putItem(namespace, "tea", {}, { ttl: 60 });
  await client.store.putItem(namespace, "tea", {}, { ttl: null });

  const item = await client.store.getItem(namespace, "tea", { refreshTtl: true });
  assert.equal(item.key, "tea");
});

test("the client rejects a label with a period", async () => {
  const error = await rejection(client.store.putItem(["a.b"], "k", {}));

  assert.match(error.message, /cannot contain periods/);
});

test("an empty namespace is rejected", async () => {
  assert.equal((await rejection(client.store.putItem([], "k", {}))).status, 400);
});
