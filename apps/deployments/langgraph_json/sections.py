"""The typed sections of `langgraph.json`: `http`, `auth`, `store`, `webhooks` and so on.

They are validated during the build, which reports an invalid value in its log, and parsed again
to serve the revision. Unknown keys are rejected.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from apps.core.linear_regex import compile_pattern
from apps.deployments.langgraph_json import uri_template
from apps.deployments.langgraph_json.keys import ConfigError

Minutes = Annotated[float, Field(gt=0, le=5_256_000, allow_inf_nan=False)]
MAX_OFFERED = 100
"""Prompts of a file, and its resources."""
_MAX_PATTERN_LENGTH = 500
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
_MAX_HEADER_LENGTH = 4096
_TEMPLATE = re.compile(r"\$\{\{(.*?)\}\}")


def check_pattern(text: str) -> str:
    """Return the RE2 pattern; raises `ValueError` for an invalid or too long one."""
    if len(text) > _MAX_PATTERN_LENGTH:
        raise ValueError(f"is longer than {_MAX_PATTERN_LENGTH} characters")
    try:
        compile_pattern(text)
    except ValueError as error:
        raise ValueError(f"is not an RE2 regular expression: {error}") from None
    return text


class ConfigSection(BaseModel):
    """An object of the file. Unknown keys and values of another type are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {name: value for name, value in data.items() if value is not None}
        return data


def _check_prefix(value: str) -> str:
    text = value.rstrip("/")
    if text and not _PREFIX.fullmatch(text):
        raise ValueError("must be a path such as /my-agent")
    return text


class Cors(ConfigSection):
    """CORS configuration. Anything not listed is not allowed."""

    allow_origins: list[str] = []
    allow_methods: list[str] = ["GET"]
    allow_headers: list[str] = []
    allow_credentials: bool = False
    allow_origin_regex: Annotated[str, AfterValidator(check_pattern)] | None = None
    expose_headers: list[str] = []
    max_age: int = Field(600, ge=0, le=86_400)


class HeaderRules(ConfigSection):
    """Header name patterns with `*`; `excludes` takes precedence."""

    includes: list[str] = Field([], validation_alias=AliasChoices("includes", "include"))
    excludes: list[str] = Field([], validation_alias=AliasChoices("excludes", "exclude"))


class Http(ConfigSection):
    """HTTP configuration of the agent."""

    app: str | None = None
    disable_assistants: bool = False
    disable_threads: bool = False
    disable_runs: bool = False
    disable_store: bool = False
    disable_mcp: bool = False
    disable_a2a: bool = False
    disable_meta: bool = False
    disable_ui: bool = False
    disable_webhooks: bool = False
    cors: Cors | None = None
    configurable_headers: HeaderRules | None = Field(
        None, validation_alias=AliasChoices("configurable_headers", "configurable-headers")
    )
    logging_headers: HeaderRules | None = Field(
        None, validation_alias=AliasChoices("logging_headers", "logging-headers")
    )
    middleware_order: Literal["middleware_first", "auth_first"] | None = None
    enable_custom_route_auth: bool = False
    mount_prefix: Annotated[str, AfterValidator(_check_prefix)] = ""


class AuthCache(ConfigSection):
    """Cache of `@auth.authenticate` results, keyed by header values."""

    cache_keys: list[str] = Field(min_length=1, max_length=20)
    ttl_seconds: float = Field(60, gt=0, le=86_400, allow_inf_nan=False)
    max_size: int = Field(1000, ge=1, le=100_000)


class Auth(ConfigSection):
    """Custom authentication of the agent."""

    path: str
    disable_studio_auth: bool = False
    openapi: dict[str, Any] | None = None
    cache: AuthCache | None = None


class StoreIndex(ConfigSection):
    dims: int = Field(ge=1, le=16_000)
    embed: str = Field(min_length=1)
    fields: list[str] = ["$"]


class StoreTtl(ConfigSection):
    refresh_on_read: bool = True
    default_ttl: Minutes | None = None
    sweep_interval_minutes: Minutes | None = None


class Store(ConfigSection):
    index: StoreIndex | None = None
    ttl: StoreTtl | None = None


class CheckpointerTtl(ConfigSection):
    strategy: Literal["delete", "keep_latest"] = "delete"
    default_ttl: Minutes | None = None
    sweep_interval_minutes: Minutes = 5
    sweep_limit: int = Field(1000, ge=1, le=1_000_000)


class Serde(ConfigSection):
    """Types that the checkpoint serializer may load."""

    allowed_json_modules: list[list[str]] | Literal[True] | None = None
    allowed_msgpack_modules: list[list[str]] | Literal[True] | None = None
    pickle_fallback: bool = False


class Checkpointer(ConfigSection):
    path: str | None = None
    ttl: CheckpointerTtl | None = None
    serde: Serde | None = None


class WebhookUrl(ConfigSection):
    require_https: bool = False
    allowed_domains: list[str] | None = None
    allowed_ports: list[Annotated[int, Field(ge=1, le=65_535)]] | None = None
    max_url_length: int | None = Field(None, ge=1, le=65_536)
    disable_loopback: bool = True


class Webhooks(ConfigSection):
    url: WebhookUrl = WebhookUrl()
    env_prefix: str = Field("LG_WEBHOOK_", min_length=1)
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _check_header_templates(self) -> Self:
        for header, value in self.headers.items():
            if len(value) > _MAX_HEADER_LENGTH:
                raise ValueError(
                    f"the header {header:.100} has more than {_MAX_HEADER_LENGTH} characters"
                )
            for template in _TEMPLATE.findall(value):
                inner = template.strip()
                name = inner.removeprefix("env.")
                if name == inner or not name.startswith(self.env_prefix):
                    raise ValueError(
                        f"the header {header} may only use ${{{{ env.NAME }}}} with names that"
                        f" start with {self.env_prefix}"
                    )
        return self


def _check_address(text: str) -> str:
    uri_template.parse(text)
    return text


class Mcp(ConfigSection):
    """Graphs that the MCP server offers as something else than a tool."""

    prompts: list[str] = Field([], max_length=MAX_OFFERED)
    """Graphs whose messages are prompts."""
    resources: dict[Annotated[str, AfterValidator(_check_address)], str] = Field(
        {}, max_length=MAX_OFFERED
    )
    """The graph that returns the content of a resource, by its address or template."""

    @model_validator(mode="after")
    def _check_once(self) -> Self:
        if both := sorted(set(self.prompts) & set(self.resources.values())):
            raise ValueError(f"the graph {both[0]} is either a prompt or a resource")
        return self

    @property
    def graph_ids(self) -> frozenset[str]:
        return frozenset(self.prompts) | frozenset(self.resources.values())


class Sections(BaseModel):
    """All sections of a file; absent ones have their defaults."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    http: Http = Http()
    auth: Auth | None = None
    store: Store = Store()
    checkpointer: Checkpointer = Checkpointer()
    webhooks: Webhooks = Webhooks()
    mcp: Mcp = Mcp()


S = TypeVar("S", bound=BaseModel)


def parse_sections(raw: dict[str, Any]) -> Sections:
    """Return the sections of a `langgraph.json`; `ConfigError` names the first invalid value."""
    present = {name: raw[name] for name in Sections.model_fields if raw.get(name) not in (None, {})}
    try:
        return Sections.model_validate(present)
    except ValidationError as error:
        raise ConfigError(_describe_error(error)) from None


def _describe_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    path = ".".join(str(step) for step in first["loc"])
    if first["type"] == "extra_forbidden":
        return f"`{path}` is an unknown key."
    message = first["msg"].removeprefix("Value error, ")
    return f"`{path}`: {message}."
