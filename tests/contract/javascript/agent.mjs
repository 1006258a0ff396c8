// The deployed agent, and the few words that all checks use.
import { Client } from "@langchain/langgraph-sdk";

export const apiUrl = process.env.AGENT_URL;
export const apiKey = process.env.API_KEY;

/** A client that shows a failure at once instead of trying it again. */
export const connect = (options = {}) =>
  new Client({ apiUrl, apiKey, ...options, callerOptions: { maxRetries: 0, ...options.caller } });

export const client = connect();

/** A new thread's id. */
export async function newThread(payload) {
  return (await client.threads.create(payload)).thread_id;
}

export const say = (content) => ({ messages: [{ role: "user", content }] });

export async function collect(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** The data of the events of that name. */
export const of = (chunks, name) =>
  chunks.filter(({ event }) => event === name).map(({ data }) => data);

/** What was thrown; a call that goes well is a failure. */
export async function refusal(promise) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error("it was not refused");
}

/** Ask until the answer is truthy; a run that others execute cannot be awaited. */
export async function until(ask, what = "it", seconds = 20) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`${what} did not happen in ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** Start a run that takes long enough to be met while it runs, and wait until it does. */
export async function startSlow(thread, payload = {}) {
  const run = await client.runs.create(thread, "slow", {
    input: { steps: 1, seconds: 30 },
    ...payload,
  });
  await until(
    async () => (await client.runs.get(thread, run.run_id)).status === "running",
    "the run's start",
  );
  return run;
}
