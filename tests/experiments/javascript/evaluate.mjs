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
const datasetName = `javascript ${crypto.randomUUID()}`;
let dataset;

const double = async ({ question }) => ({ answer: question === 3 ? -1 : 2 * question });
const triple = async ({ question }) => ({ answer: 3 * question });
const correct = ({ outputs, referenceOutputs }) => ({
  key: "correct", score: outputs.answer === referenceOutputs.answer,
});
const accuracy = ({ outputs, referenceOutputs }) => ({
  key: "accuracy",
  score: outputs.filter(({ answer }, n) => answer === referenceOutputs[n].answer).length
    / outputs.length,
});

async function run(target, options = {}) {
  const results = await evaluate(target, {
    data: datasetName, client, evaluators: [correct], summaryEvaluators: [accuracy],
    maxConcurrency: 4, ...options,
  });
  return results.experimentName;
}

async function readExperiment(projectName, count) {
  await client.awaitPendingTraceBatches();
  for (let tries = 0; tries < 100; tries += 1) {
    const project = await client.readProject({ projectName, includeStats: true });
    if (project.feedback_stats?.correct?.n === count) return project;
    await new Promise((resolve) => { setTimeout(resolve, 200); });
  }
  throw new Error(`${projectName} has not ${count} scores`);
}

before(async () => {
  dataset = await client.createDataset(datasetName);
  const numbers = [0, 1, 2, 3];
  await client.createExamples({
    datasetId: dataset.id,
    inputs: numbers.map((question) => ({ question })),
    outputs: numbers.map((question) => ({ answer: 2 * question })),
  });
});

test("an experiment has the scores of its runs and a summary", async () => {
  const name = await run(double, { numRepetitions: 2 });

  const project = await readExperiment(name, 8);
  assert.equal(project.reference_dataset_id, dataset.id);
  assert.equal(project.run_count, 8);
  assert.equal(project.feedback_stats.correct.avg, 0.75);
  assert.equal(project.session_feedback_stats.accuracy.avg, 0.75);
});

test("two experiments are compared", async () => {
  const names = [await run(double), await run(triple)];
  for (const name of names) await readExperiment(name, 4);

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

  assert.equal(compared.results.length, 4);
  const response = await fetch(`${process.env.API_URL}/datasets/${dataset.id}/comparative`, {
    headers: { "X-Api-Key": process.env.API_KEY },
  });
  const [comparison] = await response.json();
  assert.deepEqual(comparison.experiments_info.map(({ name }) => name), names);
  assert.equal(comparison.feedback_stats.larger.n, 8);
});
