// Uses the public client and prints its results as JSON for test_javascript_sdk_live.py.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.env.AGENT_URL, apiKey: process.env.API_KEY });
const graph = "agent";
const userMessage = (content) => ({ messages: [{ role: "user", content }] });

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const facts = {};

const thread = await client.threads.create();
const chunks = await collect(
  client.runs.stream(thread.thread_id, graph, {
    input: userMessage("What is 12 * 7 + 1?"),
    streamMode: ["updates", "messages"],
    onRunCreated: ({ run_id }) => {
      facts.created = run_id;
    },
  }),
);
facts.events = chunks.map((chunk) => chunk.event);
facts.runId = chunks[0].data.run_id;
facts.joined = await client.runs.join(thread.thread_id, facts.runId);
facts.state = (await client.threads.getState(thread.thread_id)).values;
facts.answer = facts.state.messages.at(-1).content;

const busy = await client.threads.create();
const runs = await Promise.all(
  Array.from({ length: 20 }, (_, n) =>
    client.runs.create(busy.thread_id, graph, { input: userMessage(`Line ${n}`) }),
  ),
);
runs.sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
await client.runs.join(busy.thread_id, runs.at(-1).run_id);
const { values } = await client.threads.getState(busy.thread_id);
facts.prompts = values.messages.filter((m) => m.type === "human").map((m) => m.content);
facts.inOrder = runs.map((run) => run.kwargs.input.messages[0].content);

const resumable = await client.threads.create();
const sent = await collect(
  client.runs.stream(resumable.thread_id, graph, {
    input: userMessage("Tell me more"),
    streamMode: ["messages-tuple"],
    streamResumable: true,
  }),
);
facts.expected = sent.slice(3).map((chunk) => chunk.id);
facts.resumed = (
  await collect(
    client.runs.joinStream(resumable.thread_id, sent[0].data.run_id, { lastEventId: sent[2].id }),
  )
).map((chunk) => chunk.id);

const mail = await client.threads.create();
const interrupted = await client.runs.wait(mail.thread_id, graph, {
  input: userMessage("Send a mail to ann@example.com about the invoice."),
});
facts.interrupts = interrupted.__interrupt__.length;
await client.runs.wait(mail.thread_id, graph, {
  command: { resume: { decisions: [{ type: "approve" }] } },
});
facts.approved = (await client.threads.get(mail.thread_id)).status;

const stateless = await client.runs.wait(null, graph, { input: userMessage("Hello") });
facts.stateless = stateless.messages.at(-1).type;

console.log(JSON.stringify(facts));
