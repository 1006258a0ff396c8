// Experiments by the public client: scores, repetitions, summary, comparison of two experiments.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { Client } from "langsmith";
import { evaluate, evaluateComparative } from "langsmith/evaluation";

const client = new Client({
  apiUrl: process.env.API_URL,
  apiKey: process.env.API_KEY,
  callerOptions: { maxRetries: 0 },
});
process.env.LANGSMITH_TRACING = "true";
process.env.LANGSMITH_ENDPOINT = process.env.API_URL;
process.env.LANGSMITH_API_KEY = process.env.API_KEY;
const SIZE = Number(process.env.SIZE);
const REPETITIONS = Number(process.env.REPETITIONS);
const CONCURRENCY = Number(process.env.CONCURRENCY);
const RUNS = SIZE * REPETITIONS;
const datasetName = `javascript ${crypto.randomUUID()}`;
let dataset;

const double = async ({ question }) => ({ answer: question % 4 === 3 ? -1 : 2 * question });
const triple = async ({ question }) => ({ answer: 3 * question });
const correct = ({ outputs, referenceOutputs }) => ({
  key: "correct", score: outputs.answer === referenceOutputs.answer,
});
const sign = ({ outputs }) => ({
  key: "sign", value: outputs.answer < 0 ? "negative" : "positive",
});
const accuracy = ({ outputs, referenceOutputs }) => ({
  key: "accuracy",
  score: outputs.filter(({ answer }, n) => answer === referenceOutputs[n].answer).length
    / outputs.length,
});

async function run(target, options = {}) {
  const results = await evaluate(target, {
    data: datasetName, client, evaluators: [correct, sign],
    summaryEvaluators: [accuracy], maxConcurrency: CONCURRENCY, ...options,
  });
  return results.experimentName;
}

async function readExperiment(projectName, count) {
  await client.awaitPendingTraceBatches();
  for (let tries = 0; tries < 300; tries += 1) {
    const project = await client.readProject({ projectName, includeStats: true });
    const { correct: first, sign: second } = project.feedback_stats ?? {};
    if (first?.n === count && second?.n === count) return project;
    await new Promise((resolve) => { setTimeout(resolve, 200); });
  }
  throw new Error(`${projectName} has not ${count} scores`);
}

before(async () => {
  dataset = await client.createDataset(datasetName);
  const numbers = Array.from({ length: SIZE }, (_, number) => number);
  await client.createExamples({
    datasetId: dataset.id,
    inputs: numbers.map((question) => ({ question })),
    outputs: numbers.map((question) => ({ answer: 2 * question })),
  });
});

test("an experiment has the scores of its runs and a summary", async () => {
  const name = await run(double, { numRepetitions: REPETITIONS });

  const project = await readExperiment(name, RUNS);
  assert.equal(project.reference_dataset_id, dataset.id);
  assert.equal(project.run_count, RUNS);
  assert.equal(project.feedback_stats.correct.avg, 0.75);
  assert.deepEqual(project.feedback_stats.sign.values, {
    negative: RUNS / 4, positive: 3 * RUNS / 4,
  });
  assert.equal(project.session_feedback_stats.accuracy.avg, 0.75);
});

test("two experiments are compared", async () => {
  const names = [await run(double), await run(triple)];
  for (const name of names) await readExperiment(name, SIZE);

  const compared = await evaluateComparative(names, {
    client,
    evaluators: [({ runs }) => ({
      key: "larger",
      scores: Object.fromEntries(runs.map((one) => [
        one.id,
        Number(runs.every((other) => other.outputs.answer <= one.outputs.answer)),
      ])),
    })],
  });

  assert.equal(compared.results.length, SIZE);
  const response = await fetch(`${process.env.API_URL}/datasets/${dataset.id}/comparative`, {
    headers: { "X-Api-Key": process.env.API_KEY },
  });
  const [comparison] = await response.json();
  assert.deepEqual(comparison.experiments_info.map(({ name }) => name), names);
  assert.equal(comparison.feedback_stats.larger.n, 2 * SIZE);
});
