/**
 * The shapes that the playground exchanges with the server.
 *
 * @typedef {{ type: string, text?: string, url?: string, data?: string, mime_type?: string, filename?: string }} Block
 * @typedef {{ id: string, name: string, arguments: unknown }} ToolCall
 * @typedef {{ role: string, content: string | Block[], name?: string, tool_call_id?: string, tool_calls?: ToolCall[],
 *   thinking?: string }} Message
 * @typedef {{ agent?: string, url?: string }} ToolTarget
 * @typedef {{ name: string, description: string, schema: unknown, result: string | null, target: ToolTarget | null }} Tool
 * @typedef {{ slug: string, assistant: string, context: Record<string, unknown> }} AgentChoice
 * @typedef {Record<string, unknown> & { provider: string, model: string }} ModelSettings
 * @typedef {{ name: string, prompt: { repo: string, commit: string } | null, template_format: string, messages: Message[],
 *   tools: Tool[], response_schema: unknown, model: ModelSettings, agent: AgentChoice | null }} Setting
 * @typedef {{ letter: string, setting: Setting }} Column
 * @typedef {{ setting: Setting, variables: Record<string, unknown> }} RunInput
 * @typedef {{ dataset_id: string, as_of: string | null, splits: string[], mapping: Record<string, string> }} DatasetChoice
 * @typedef {{ columns: Column[], variables: Record<string, unknown>, dataset: DatasetChoice | null,
 *   view: Record<string, unknown> }} State
 * @typedef {{ id: string, name: string, secret: string, needs_key: boolean, has_key: boolean, has_base_url: boolean,
 *   needs_base_url: boolean, accepts_any_model: boolean, parameters: string[],
 *   models: { id: string, input_price: number | null, output_price: number | null }[] }} Provider
 * @typedef {{ providers: Provider[], may_add_keys: boolean, secrets_url: string, may_run: boolean }} Catalogue
 * @typedef {{ input_tokens: number, output_tokens: number, total_tokens: number } | null} Usage
 * @typedef {{ code: string, detail: string, provider?: string, status?: number | null, retry_after?: number | null,
 *   errors?: Record<string, string>[] }} Problem
 * @typedef {{ path: string, rule: string, message: string }} SchemaError
 * @typedef {{ message: Message | null, usage: Usage, cost: number | null, latency_ms: number | null,
 *   first_token_ms: number | null, run_id?: string, trace_url?: string, error?: unknown, letter?: string }} Recorded
 * @typedef {{ stream: string, draft: string, shares: string, prefill: string, commits: string, experiments: string,
 *   estimate: string, rows: string, job: string, dataset: string, page: string, prompt_diff: string,
 *   tool_call: string, messages: string, run: string }} Urls
 * @typedef {{ urls: Urls, catalogue: Catalogue, state: State, recorded: (Recorded | null)[],
 *   agents: { slug: string, name: string }[], owner: string,
 *   draft_saved_at?: string | null, is_read_only: boolean, may_experiment: boolean, prompts: { repo: string, head: string | null }[] }} Config
 */
export {};
