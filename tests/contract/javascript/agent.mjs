// The deployed agent, and helpers that all tests use.
import { Client } from "@langchain/langgraph-sdk";

export const apiUrl = process.env.AGENT_URL;
export const apiKey = process.env.API_KEY;

/** Create a client that does not retry failed requests. */
export const connect = (options = {}) =>
  new Client({ apiUrl, apiKey, ...options, callerOptions: { maxRetries: 0, ...options.caller } });

export const client = connect();

/** Create a thread and return its id. */
export async function newThread(payload) {
  return (await client.threads.create(payload)).thread_id;
}

export const userMessage = (content) => ({ messages: [{ role: "user", content }] });

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** Return the data of the events of that name. */
export const dataOf = (chunks, name) =>
  chunks.filter(({ event }) => event === name).map(({ data }) => data);

/** Return the error of the promise; throw when it resolves. */
export async function rejection(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("the call was not rejected");
}

/** Poll until the condition returns a truthy value, and return it. */
export async function waitUntil(condition, description = "it", seconds = 120) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`${description} did not happen in ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Start a slow run and wait until it is running. */
export async function startSlow(thread, payload = {}) {
  const run = await client.runs.create(thread, "slow", {
    input: { steps: 1, seconds: 100 },
    ...payload,
  });
  await waitUntil(
    async () => (await client.runs.get(thread, run.run_id)).status === "running",
    "the run's start",
  );
  return run;
}
