/** Fetches and parses one JSON document off the main thread and answers levels of it. */
import { level, within } from "../lib/json-levels.js";

/** @type {Promise<unknown>} */
let document;

self.onmessage = async ({ data }) => {
  if (data.src) {
    document = fetch(data.src, { headers: { Accept: "application/json" } }).then((answer) => {
      if (!answer.ok) throw new Error(`the server responded with status ${answer.status}`);
      return answer.json();
    });
    return;
  }
  try {
    self.postMessage({ id: data.id, level: level(within(await document, data.path), data.from) });
  } catch (error) {
    self.postMessage({ id: data.id, error: error instanceof Error ? error.message : String(error) });
  }
};
