// Datasets by the public client: CSV, versions, tags, splits, reads as of a version, attachments.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { Client } from "langsmith";

const client = new Client({
  apiUrl: process.env.API_URL,
  apiKey: process.env.API_KEY,
  callerOptions: { maxRetries: 0 },
});
const created = [];

async function collect(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

async function makeDataset(count) {
  const dataset = await client.createDataset(`javascript ${crypto.randomUUID()}`);
  created.push(dataset.id);
  const numbers = Array.from({ length: count }, (_, number) => number);
  const examples = await client.createExamples(numbers.map((question) => ({
    dataset_id: dataset.id, inputs: { question }, outputs: { answer: 2 * question },
  })));
  return { dataset, examples };
}

async function questions(options) {
  const examples = await collect(client.listExamples(options));
  return examples.map(({ inputs }) => inputs.question).sort((a, b) => a - b);
}

after(async () => {
  for (const datasetId of created) await client.deleteDataset({ datasetId });
});

test("a CSV file is uploaded with inputs and outputs", async () => {
  const name = `javascript csv ${crypto.randomUUID()}`;
  const dataset = await client.uploadCsv({
    csvFile: new Blob(["question,answer\nRed?,yes\nBlue?,no\n"], { type: "text/csv" }),
    fileName: "colours.csv", inputKeys: ["question"], outputKeys: ["answer"], name,
  });
  created.push(dataset.id);

  const examples = await collect(client.listExamples({ datasetName: name }));
  assert.deepEqual(
    examples.map(({ inputs, outputs }) => [inputs.question, outputs.answer]).sort(),
    [["Blue?", "no"], ["Red?", "yes"]],
  );
  assert.equal((await client.readDataset({ datasetName: name })).example_count, 2);
});

test("versions are read by time and tag and compared", async () => {
  const { dataset, examples } = await makeDataset(3);
  const datasetId = dataset.id;
  const before = await client.readDatasetVersion({ datasetId, tag: "latest" });
  await client.updateDatasetTag({ datasetId, asOf: before.as_of, tag: "first" });
  await client.updateExample({ id: examples[0].id, inputs: { question: 10 } });
  await client.createExamples([{ dataset_id: datasetId, inputs: { question: 11 } }]);
  await client.deleteExample(examples[2].id);

  assert.deepEqual(await questions({ datasetId }), [1, 10, 11]);
  assert.deepEqual(await questions({ datasetId, asOf: before.as_of }), [0, 1, 2]);
  assert.deepEqual(await questions({ datasetId, asOf: "first" }), [0, 1, 2]);
  const tagged = await client.readDatasetVersion({ datasetId, tag: "first" });
  assert.equal(tagged.as_of, before.as_of);
  const diff = await client.diffDatasetVersions({
    datasetId, fromVersion: "first", toVersion: "latest",
  });
  assert.deepEqual(diff.examples_modified, [examples[0].id]);
  assert.deepEqual(diff.examples_removed, [examples[2].id]);
  assert.equal(diff.examples_added.length, 1);
});

test("splits are changed and read as of a version", async () => {
  const { dataset, examples } = await makeDataset(3);
  const datasetId = dataset.id;
  const before = await client.readDatasetVersion({ datasetId, tag: "latest" });
  await client.updateDatasetSplits({ datasetId, splitName: "hard", exampleIds: [examples[1].id] });

  assert.deepEqual((await client.listDatasetSplits({ datasetId })).sort(), ["base", "hard"]);
  assert.deepEqual(await client.listDatasetSplits({ datasetId, asOf: before.as_of }), ["base"]);
  assert.deepEqual(await questions({ datasetId, splits: ["hard"] }), [1]);
  await client.updateDatasetSplits({
    datasetId, splitName: "hard", exampleIds: [examples[1].id], remove: true,
  });
  assert.deepEqual(await questions({ datasetId, splits: ["hard"] }), []);
});

test("attachments are uploaded, kept, renamed and downloaded", async () => {
  const { dataset } = await makeDataset(0);
  const id = crypto.randomUUID();
  const bytes = (text) => new TextEncoder().encode(text);
  await client.createExamples([{
    id, dataset_id: dataset.id, inputs: { question: 0 },
    attachments: {
      note: { mimeType: "text/plain", data: bytes("hello") },
      chart: ["image/png", bytes("picture")],
    },
  }]);
  const read = async () => {
    const [example] = await collect(
      client.listExamples({ datasetId: dataset.id, includeAttachments: true }),
    );
    const texts = await Promise.all(Object.entries(example.attachments).map(
      async ([name, { presigned_url: url }]) => [name, await (await fetch(url)).text()],
    ));
    return Object.fromEntries(texts);
  };

  assert.deepEqual(await read(), { note: "hello", chart: "picture" });
  await client.updateExample({
    id, dataset_id: dataset.id, attachments: { more: ["text/plain", bytes("more")] },
    attachments_operations: { rename: { note: "letter" }, retain: [] },
  });
  assert.deepEqual(await read(), { letter: "hello", more: "more" });
});
