/** Requests of the playground to its own server. */

/** @typedef {import("./types.js").Problem} Problem */

/** A request that failed, with the server's description of why. */
export class RequestFailed extends Error {
  /**
   * @param {number} status 0 if there was no response
   * @param {Problem} problem
   */
  constructor(status, problem) {
    super(problem.detail);
    this.status = status;
    this.problem = problem;
  }
}

/** @returns {string} */
function csrfToken() {
  const field = document.querySelector("prompt-playground [name=csrfmiddlewaretoken]");
  return /** @type {HTMLInputElement | null} */ (field)?.value ?? "";
}

/**
 * Send the request and return its response. Raises `RequestFailed` unless it succeeds.
 *
 * @param {string} url
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal, keepalive?: boolean, accept?: string }} [options]
 */
export async function sendRequest(url, { method = "GET", body, signal, keepalive, accept } = {}) {
  const isWrite = method !== "GET";
  /** @type {RequestInit} */
  const request = {
    method,
    headers: {
      ...(isWrite ? { "X-CSRFToken": csrfToken() } : {}),
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(accept ? { Accept: accept } : {}),
    },
  };
  if (body !== undefined) request.body = JSON.stringify(body);
  if (signal) request.signal = signal;
  if (keepalive) request.keepalive = keepalive;
  let response;
  try {
    response = await fetch(url, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestFailed(0, { code: "offline", detail: "The server does not respond." });
  }
  if (response.ok) return response;
  throw new RequestFailed(response.status, await readProblem(response));
}

/**
 * @param {string} url
 * @param {{ method?: string, body?: unknown, signal?: AbortSignal, keepalive?: boolean, accept?: string }} [options]
 * @returns {Promise<any>} the JSON of the response; null if it has no content
 */
export async function requestJson(url, options) {
  const response = await sendRequest(url, options);
  return response.status === 204 ? null : response.json();
}

/** @param {Response} response @returns {Promise<Problem>} */
async function readProblem(response) {
  const body = await response.json().catch(() => null);
  const wait = Number(response.headers.get("Retry-After"));
  return {
    code: body?.code ?? "error",
    detail: body?.detail ?? `The server answered ${response.status}.`,
    errors: Array.isArray(body?.errors) ? body.errors : [],
    status: response.status,
    retry_after: wait > 0 ? wait : null,
  };
}
