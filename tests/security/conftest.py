from tests.agent_server.conftest import (  # noqa: F401  (fixtures)
    agent,
    asgi_app,
    clear_caches,
    key,
    redis_client,
)
