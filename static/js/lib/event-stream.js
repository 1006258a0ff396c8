/** Reads server-sent events from the response of a request that `EventSource` cannot make, such as a POST. */

/** @typedef {{ name: string, data: string }} StreamEvent an event and its data, whose lines are joined */

/**
 * Yield the events of the response until it ends. An event without data is left out, as `EventSource` does.
 *
 * @param {Response} response
 * @returns {AsyncGenerator<StreamEvent>}
 */
export async function* readEvents(response) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      rest += value ?? "";
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = done ? "" : (blocks.pop() ?? "");
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
      if (done) return;
    }
  } finally {
    // A caller that stops early closes the connection, so that the server stops, too.
    await reader.cancel().catch(() => undefined);
  }
}

/** @param {string} block @returns {StreamEvent | null} */
function parseEvent(block) {
  const name = /^event: ?(.*)$/m.exec(block)?.[1]?.trim() ?? "message";
  const data = [...block.matchAll(/^data: ?(.*)$/gm)].map((match) => match[1]).join("\n");
  return data ? { name, data } : null;
}
