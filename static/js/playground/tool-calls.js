/** Calls the tools of a column: an assistant of a deployed agent as its MCP tool, or a webhook through the server. */
import { requestJson } from "./requests.js";

/**
 * @typedef {import("./types.js").Tool} Tool
 * @typedef {{ name: string, description: string, inputSchema: unknown }} AgentTool
 */

/**
 * Send a request of the Model Context Protocol to an agent. Raises an error for a refusal.
 *
 * @param {string} slug
 * @param {string} method
 * @param {Record<string, unknown>} params
 */
async function requestMcp(slug, method, params) {
  const message = await requestJson(`/agents/${encodeURIComponent(slug)}/mcp`, {
    method: "POST",
    body: { jsonrpc: "2.0", id: 1, method, params },
    accept: "application/json, text/event-stream",
  });
  if (message.error) throw new Error(message.error.message);
  return message.result;
}

/** @param {string} slug @returns {Promise<AgentTool[]>} */
export async function listAgentTools(slug) {
  return (await requestMcp(slug, "tools/list", {})).tools;
}

/**
 * Call the target of a tool; return the text of its result. Raises an error if the tool fails.
 *
 * @param {Tool} tool
 * @param {unknown} args
 * @param {string} webhookUrl the route that calls webhooks
 * @returns {Promise<string>}
 */
export async function callTool(tool, args, webhookUrl) {
  const { agent, url } = tool.target ?? {};
  if (url) {
    const body = { url, name: tool.name, arguments: args };
    return (await requestJson(webhookUrl, { method: "POST", body })).result;
  }
  const result = await requestMcp(agent ?? "", "tools/call", { name: tool.name, arguments: args });
  const text = result.content
    .map((/** @type {{ text?: string }} */ block) => block.text ?? JSON.stringify(block))
    .join("\n");
  if (result.isError) throw new Error(text);
  return text;
}
