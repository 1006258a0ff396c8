// Uses the public client as its users do and prints what it saw; the test beside it judges.
import { Client } from "@langchain/langgraph-sdk";

const client = new Client({ apiUrl: process.env.AGENT_URL, apiKey: process.env.API_KEY });
const graph = "agent";
const said = (content) => ({ messages: [{ role: "user", content }] });

async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

const facts = {};

const thread = await client.threads.create();
const chunks = await collect(
  client.runs.stream(thread.thread_id, graph, {
    input: said("What is 12 * 7 + 1?"),
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
    client.runs.create(busy.thread_id, graph, { input: said(`Line ${n}`) }),
  ),
);
runs.sort((a, b) => (a.created_at < b.created_at ? -1 : 1));
await client.runs.join(busy.thread_id, runs.at(-1).run_id);
const { values } = await client.threads.getState(busy.thread_id);
facts.asked = values.messages.filter((m) => m.type === "human").map((m) => m.content);
facts.inOrder = runs.map((run) => run.kwargs.input.messages[0].content);

const kept = await client.threads.create();
const whole = await collect(
  client.runs.stream(kept.thread_id, graph, {
    input: said("Tell me more"),
    streamMode: ["messages-tuple"],
    streamResumable: true,
  }),
);
facts.expected = whole.slice(3).map((chunk) => chunk.id);
facts.resumed = (
  await collect(
    client.runs.joinStream(kept.thread_id, whole[0].data.run_id, { lastEventId: whole[2].id }),
  )
).map((chunk) => chunk.id);

const letter = await client.threads.create();
const question = await client.runs.wait(letter.thread_id, graph, {
  input: said("Send a mail to ann@example.com about the invoice."),
});
facts.interrupts = question.__interrupt__.length;
await client.runs.wait(letter.thread_id, graph, { command: { resume: true } });
facts.approved = (await client.threads.get(letter.thread_id)).status;

const alone = await client.runs.wait(null, graph, { input: said("Hello") });
facts.stateless = alone.messages.at(-1).type;

console.log(JSON.stringify(facts));
