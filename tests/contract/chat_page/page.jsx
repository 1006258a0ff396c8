// A chat on `useStream` that uses it as chat UIs do. The page shows the values of the hook for the
// tests; the query of the address names the agent and the options.
import { useStream } from "@langchain/langgraph-sdk/react";
import { useState } from "react";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const json = (name) => JSON.parse(query.get(name) ?? "null");

/** All texts of each message in order, for tests of streaming. */
window.grown = {};
window.seen = { created: [], custom: [], updates: [], errors: [], finished: [], stopped: 0 };

function remember(thread) {
  query.set("thread", thread);
  history.replaceState(null, "", `?${query}`);
}

function Chat() {
  const [threadId, setThreadId] = useState(query.get("thread"));
  const stream = useStream({
    apiUrl: query.get("api"),
    apiKey: query.get("key"),
    assistantId: query.get("graph"),
    defaultHeaders: json("headers") ?? undefined,
    callerOptions: { maxRetries: 0 },
    threadId,
    onThreadId: (id) => {
      setThreadId(id);
      remember(id);
    },
    reconnectOnMount: query.get("reconnect") !== "0",
    fetchStateHistory: { limit: 50 },
    onCreated: (run) => window.seen.created.push(run),
    onCustomEvent: (data, { namespace }) => window.seen.custom.push([data, namespace ?? []]),
    onUpdateEvent: (data, { namespace }) => window.seen.updates.push([data, namespace ?? []]),
    onError: (error) => window.seen.errors.push(String(error.message ?? error)),
    onFinish: (state) => window.seen.finished.push(state?.values),
    onStop: () => {
      window.seen.stopped += 1;
    },
  });
  window.stream = stream;

  const say = (content, options = {}) => {
    const message = { type: "human", id: crypto.randomUUID(), content };
    return stream.submit(
      { messages: [message] },
      {
        streamSubgraphs: true,
        optimisticValues: (before) => ({ messages: [...(before.messages ?? []), message] }),
        ...json("options"),
        ...options,
      },
    );
  };
  window.say = say;

  for (const { id, content } of stream.messages) {
    const texts = (window.grown[id] ??= []);
    if (texts.at(-1) !== content) texts.push(content);
  }

  return (
    <main>
      <p id="state">{stream.isLoading ? "busy" : stream.isThreadLoading ? "opening" : "idle"}</p>
      <p id="thread">{threadId}</p>
      <ol id="messages">
        {stream.messages.map((message, index) => (
          <Message key={message.id ?? index} {...{ message, index, stream, say }} />
        ))}
      </ol>
      <pre id="values">{JSON.stringify(stream.values)}</pre>
      {stream.error != null && <p role="alert">{String(stream.error.message ?? stream.error)}</p>}
      {stream.interrupts.map((interrupt, index) => (
        <pre className="interrupt" key={interrupt.id ?? index}>
          {JSON.stringify(interrupt)}
        </pre>
      ))}
      <button onClick={() => stream.submit(undefined, { command: { resume: "yes" } })}>Approve</button>
      <button onClick={() => stream.submit(undefined, json("options") ?? {})}>Continue</button>
      <button onClick={() => stream.stop()}>Stop</button>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          say(new FormData(event.target).get("text"));
          event.target.reset();
        }}
      >
        <input name="text" aria-label="Message" />
        <button>Send</button>
      </form>
    </main>
  );
}

function Message({ message, index, stream, say }) {
  const known = stream.getMessagesMetadata(message, index);
  const before = known?.firstSeenState?.parent_checkpoint;
  const branches = known?.branchOptions ?? [];
  return (
    <li data-type={message.type} data-id={message.id}>
      <span className="text">{message.content}</span>
      {stream.getToolCalls(message).map(({ call, result, state }) => (
        <code key={call.id}>
          {call.name} {state} {result?.content}
        </code>
      ))}
      {message.type === "ai" && (
        <button onClick={() => stream.submit(undefined, { checkpoint: before })}>Regenerate</button>
      )}
      {message.type === "human" && (
        <button onClick={() => say(`${message.content} indeed`, { checkpoint: before })}>Edit</button>
      )}
      {branches.length > 1 && (
        <nav>
          {branches.map((branch, index) => (
            <button
              key={branch}
              aria-current={branch === known.branch}
              onClick={() => stream.setBranch(branch)}
            >
              Branch {index + 1}
            </button>
          ))}
        </nav>
      )}
    </li>
  );
}

createRoot(document.querySelector("#root")).render(<Chat />);
