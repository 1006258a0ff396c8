/** Fetches and parses one JSON document off the main thread and responds with its levels. */
import { describeLevel, resolvePath } from "../lib/json-tree.js";

/** @type {Promise<unknown>} */
let parsedDocument;

self.onmessage = async ({ data }) => {
  if (data.src) {
    parsedDocument = fetch(data.src, { headers: { Accept: "application/json" } }).then(
      (response) => {
        if (!response.ok) throw new Error(`the server responded with status ${response.status}`);
        return response.json();
      },
    );
    return;
  }
  try {
    self.postMessage({
      id: data.id,
      level: describeLevel(resolvePath(await parsedDocument, data.path), data.from),
    });
  } catch (error) {
    self.postMessage({
      id: data.id,
      error: error instanceof Error ? error.message : String(error),
    });
  }
};
