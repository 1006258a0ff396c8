// A profile of the public JavaScript client, in LANGSMITH_CONFIG_FILE.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "langsmith";

test("a profile with an expired token is refreshed", async () => {
  const names = [];
  for await (const project of new Client().listProjects()) names.push(project.name);
  assert.ok(names.includes("default"), names.join());
});
