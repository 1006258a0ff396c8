// Prompts, agents and skills by the public JavaScript client.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { ChatPromptTemplate, PromptTemplate } from "@langchain/core/prompts";
import { Client } from "langsmith";

const client = new Client({
  apiUrl: process.env.API_URL,
  apiKey: process.env.API_KEY,
  callerOptions: { maxRetries: 0 },
  disablePromptCache: true,
});
const name = `js-${crypto.randomUUID().slice(0, 13)}`;
const created = new Set();
const chat = ChatPromptTemplate.fromMessages([["system", "Speak {language}"], ["human", "{question}"]]);

async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

after(async () => {
  for (const prompt of created) await client.deletePrompt(prompt);
});

test("a chat prompt is pushed, pulled, tagged and pinned", async () => {
  created.add(name);
  const url = await client.pushPrompt(name, {
    object: chat, description: "Helps.", tags: ["a"], commitTags: ["v1"], commitDescription: "first",
  });
  const first = await client.pullPromptCommit(name);
  assert.match(url, new RegExp(`/prompts/${name}/${first.commit_hash.slice(0, 8)}`));
  assert.deepEqual(first.manifest, JSON.parse(JSON.stringify(chat)));
  await client.createCommit(name, PromptTemplate.fromTemplate("{a}"));
  assert.deepEqual((await client.pullPromptCommit(`${name}:v1`)).manifest, first.manifest);
  assert.equal((await client.pullPromptCommit(`${name}:${first.commit_hash}`)).commit_hash, first.commit_hash);
  const commits = await collect(client.listCommits(name));
  assert.equal(commits.length, 2);
  assert.equal(commits[1].commit_hash, first.commit_hash);
  assert.equal(commits[0].parent_commit_hash, first.commit_hash);
});

test("a bound model is pulled only on request", async () => {
  const prompt = `${name}-model`;
  created.add(prompt);
  const model = {
    lc: 1, type: "constructor", id: ["langchain", "chat_models", "openai", "ChatOpenAI"],
    kwargs: { model: "gpt-4o", openai_api_key: { lc: 1, type: "secret", id: ["OPENAI_API_KEY"] } },
  };
  const chain = {
    lc: 1, type: "constructor", id: ["langchain_core", "runnables", "RunnableSequence"],
    kwargs: { first: JSON.parse(JSON.stringify(chat)), last: model },
  };
  await client.pushPrompt(prompt, { object: chain });

  const reduced = await client.pullPromptCommit(prompt);
  assert.deepEqual(reduced.manifest, chain.kwargs.first);
  const whole = await client.pullPromptCommit(prompt, { includeModel: true });
  assert.deepEqual(whole.manifest.kwargs, chain.kwargs);
});

test("a stale parent and equal content are conflicts", async () => {
  const prompt = `${name}-conflict`;
  created.add(prompt);
  await client.pushPrompt(prompt, { object: chat });
  const first = (await client.pullPromptCommit(prompt)).commit_hash;
  await assert.rejects(client.createCommit(prompt, chat), /409|conflict/i);
  await client.createCommit(prompt, PromptTemplate.fromTemplate("2 {a}"));
  await assert.rejects(
    client.createCommit(prompt, PromptTemplate.fromTemplate("3 {a}"), { parentCommitHash: first }),
    /409|conflict/i,
  );
});

test("prompts are listed, liked, changed and deleted", async () => {
  const prompt = `${name}-listed`;
  await client.createPrompt(prompt, { description: "unusual", tags: ["t"] });
  assert.equal(await client.promptExists(prompt), true);
  const listed = await collect(client.listPrompts({ query: prompt }));
  assert.deepEqual(listed.map((row) => row.repo_handle), [prompt]);
  assert.deepEqual(await client.likePrompt(prompt), { likes: 1 });
  assert.deepEqual(await client.unlikePrompt(prompt), { likes: 0 });
  await client.updatePrompt(prompt, { description: "new", readme: "# Read" });
  assert.equal((await client.getPrompt(prompt)).description, "new");
  await client.deletePrompt(prompt);
  assert.equal(await client.promptExists(prompt), false);
});

test("an agent and a skill are pushed, pulled, listed and deleted", async () => {
  const [agent, skill] = [`${name}-agent`, `${name}-skill`];
  await client.pushSkill(skill, { files: { "SKILL.md": { type: "file", content: "# Search" } } });
  const files = {
    "AGENTS.md": { type: "file", content: "# Hi" },
    search: { type: "skill", repo_handle: skill },
  };
  const url = await client.pushAgent(agent, { files, description: "Codes" });
  const pulled = await client.pullAgent(agent);
  assert.match(url, new RegExp(`/context/${agent}/${pulled.commit_hash.slice(0, 8)}`));
  assert.equal(pulled.files["AGENTS.md"].content, "# Hi");
  assert.equal(pulled.files.search.commit_hash, (await client.pullSkill(skill)).commit_hash);
  await client.pushAgent(agent, { files: { "AGENTS.md": null }, parentCommit: pulled.commit_hash });
  assert.deepEqual(Object.keys((await client.pullAgent(agent)).files), ["search"]);
  assert.ok((await collect(client.listAgents({ query: agent }))).some((row) => row.repo_handle === agent));
  assert.equal((await collect(client.listSkills({ query: skill }))).length, 1);
  await client.deleteAgent(agent);
  await client.deleteSkill(skill);
  assert.equal(await client.agentExists(agent), false);
  assert.equal(await client.skillExists(skill), false);
});
