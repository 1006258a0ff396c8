"""The summary that `make up` prints: addresses, sign-in, API key, examples."""

from config.env import Env


def build_summary(env: Env, facts: dict[str, str], seconds: float) -> str:
    """Return the summary; `facts` are the result of `manage.py bootstrap_instance`."""
    url = env.base_url
    sample = [
        "  Call the sample agent:",
        "",
        f"    curl -N {url}/agents/sample-agent/runs/stream \\",
        f"      -H 'X-Api-Key: {facts['api_key']}' -H 'Content-Type: application/json' \\",
        """      -d '{"assistant_id": "agent", "stream_mode": "updates",""",
        """           "input": {"messages": [{"role": "user", "content": "Hello"}]}}'""",
        "",
    ]
    lines = [
        f"Slipway is ready ({seconds:.0f} s).",
        "",
        f"  Open       {url}",
        f"  Sign in    {facts['email']}  {facts['password']}",
        f"  API key    {facts['api_key']}",
        "",
        *(sample if env.sample_agent else ()),
        "  Trace your own code:",
        "",
        f"    export LANGSMITH_TRACING=true LANGSMITH_ENDPOINT={facts['api_url']}",
        f"    export LANGSMITH_API_KEY={facts['api_key']}",
        "",
        f"  Logs are in {env.instance.log_dir}. Ctrl-C stops everything.",
        "",
        f"  Your first trace, step by step: {url}/start",
    ]
    return "\n".join(lines)
