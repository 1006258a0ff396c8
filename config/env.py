"""The typed settings of an installation, read once from environment variables.

Each field is described in docs/settings.md; a test fails when one is missing there.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from apps.core.instance import Instance

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
BASE_DIR = Path(__file__).resolve().parent.parent


def _normalize_address(text: str) -> str:
    """Return an address as such and a network in CIDR notation."""
    return str(ipaddress.ip_network(text) if "/" in text else ipaddress.ip_address(text))


def _split_list(value: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in value.split(",") if item.strip())


def _web_processes() -> int:
    # Two processes ingest a quarter more runs per second than one: docs/adr/0002.
    return min(2, os.cpu_count() or 1)


class Env(BaseSettings):
    """The settings of one installation, named like the environment variables."""

    model_config = SettingsConfigDict(extra="ignore", frozen=True, env_ignore_empty=True)

    # Network and data folder
    port: int = Field(8000, ge=1, le=65535)
    host: str = "127.0.0.1"
    """Address to listen on; `0.0.0.0` accepts connections from other machines."""
    data_dir: Path = BASE_DIR / "var"
    public_url: str | None = None
    """Base URL for clients and browsers; default `http://127.0.0.1:<port>`."""
    public_api_url: str | None = None
    """Base URL of the APIs, if it is not that of the pages; default `public_url`."""
    public_beacon_url: str | None = None
    """Base URL of `/v1/beacon`, if it is not that of the APIs; default `public_api_url`."""
    internal_url: str | None = None
    """Base URL at which agents send their traces; default `http://127.0.0.1:<port>`."""
    allowed_hosts: str | None = None
    """Host names that are served; by default those of `public_url`, or all without one."""
    cors_origins: str = "*"
    """Origins whose scripts may call the APIs with API keys, never with cookies."""
    region: Literal["us", "eu"] = "us"
    """Selects the rate limits (apps/rate_limits/table.py)."""
    egress_addresses: str = ""
    """Addresses from which the platform's requests come, as customers' firewalls see them."""
    ingress_addresses: str = ""
    """Addresses to which the host names of the platform resolve."""
    trusted_proxies: str = ""
    """Addresses and networks whose X-Forwarded-For and X-Forwarded-Proto are trusted."""
    agent_domain: str | None = None
    """Wildcard domain: `<slug>.<agent_domain>` becomes the address of a deployment."""

    # Data services; without a URL, the embedded ones in `data_dir`
    database_url: str | None = None
    redis_url: str | None = None
    billing_database_url: str | None = None
    """Outside the US: the US database, with a role limited to billing's tables."""

    # Object storage; without a bucket, files in `data_dir/objects`
    object_storage_bucket: str | None = None
    object_storage_endpoint: str | None = None
    """URL of an S3-compatible server; default Amazon S3."""
    object_storage_region: str | None = None
    object_storage_access_key: SecretStr | None = None
    object_storage_secret_key: SecretStr | None = None
    object_storage_prefix: str = ""
    large_payload_bytes: int = Field(262_144, ge=4096, le=1_073_741_824)
    """Compressed payloads of a run above this size go to object storage."""

    # Secrets; by default created at first use in `data_dir`, readable by their owner only
    secret_key: SecretStr | None = None
    encryption_keys: SecretStr | None = None
    """Comma-separated Fernet keys: the first encrypts, all decrypt."""

    # Mail
    email_url: SecretStr | None = None
    """`smtp://user:password@host:587` (STARTTLS) or `smtps://...`; without it no mail is sent."""
    email_from: str = "Slipway <slipway@localhost>"

    # Sign-up and sign-in
    sign_up: bool = False
    """Whether anyone may create an account; invited users always may."""
    oidc_name: str = "Single sign-on"
    oidc_server_url: str | None = None
    """Issuer of an OpenID Connect provider whose users may sign in."""
    oidc_client_id: str | None = None
    oidc_client_secret: SecretStr | None = None

    debug: bool = False
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_json: bool = False

    # Monitoring
    metrics_token: SecretStr | None = None
    """Bearer token of `/metrics`; created like the other secrets by default."""
    metrics_loopback: bool = False
    """Whether `/metrics` is open to requests from this machine without the token."""
    sentry_dsn: SecretStr | None = None
    sentry_environment: str = "production"

    # Processes
    start_timeout_seconds: int = Field(120, ge=10, le=3600)
    web_processes: int = Field(default_factory=_web_processes, ge=1, le=64)
    web_threads: int = Field(8, ge=1, le=128)
    playground_processes: int = Field(0, ge=0, le=16)
    """Processes that call models for the playground; 0: web and worker processes do."""
    playground_url: str | None = None
    """Base URL of these processes on another machine; default a socket in `data_dir`."""
    worker_threads: int = Field(8, ge=1, le=64)
    build_threads: int = Field(2, ge=1, le=16)
    database_connections: int = Field(100, ge=20, le=1000)
    redis_memory_mb: int = Field(512, ge=64, le=65_536)

    # Agents
    sample_agent: bool = True
    """Whether `make up` deploys the sample agent."""
    sample_data: bool = True
    """Whether the first workspace starts with sample traces."""
    agent_runs_per_worker: int = Field(781, ge=1, le=10_000)
    agent_runs_organization_percent: int = Field(80, ge=1, le=100)
    """Share of the slots of a worker, without those of others, that an organization may hold."""
    agent_runs_deployment_percent: int = Field(80, ge=1, le=100)
    """Share of these slots, without those of its other deployments, that a deployment may hold."""
    agent_frames_percent: int = Field(50, ge=1, le=100)
    """Time of a worker for messages of graph hosts while several organizations send some."""
    agent_run_lease_seconds: float = Field(20.0, ge=1, le=300)
    agent_run_max_attempts: int = Field(3, ge=1, le=20)
    agent_run_timeout_seconds: int = Field(3600, ge=1, le=86_400)
    resumable_stream_ttl_seconds: int = Field(120, ge=10, le=86_400)
    stream_run_mb: int = Field(8, ge=1, le=1024)
    """Events of a run that Redis keeps for readers that connect later."""
    stream_deployment_mb: int = Field(64, ge=1, le=65_536)
    """Events of all runs of a deployment that Redis keeps, per worker."""
    graph_host_memory_mb: int = Field(2048, ge=128, le=65_536)
    graph_host_processes: int = Field(256, ge=16, le=4096)
    graph_hosts_per_worker: int = Field(16, ge=1, le=256)
    warm_graph_hosts: int = Field(3, ge=0, le=256)
    build_memory_mb: int = Field(4096, ge=256, le=65_536)
    build_timeout_seconds: int = Field(900, ge=10, le=7200)
    graph_import_timeout_seconds: int = Field(120, ge=5, le=3600)
    build_disk_mb: int = Field(10_240, ge=512, le=1_048_576)
    sandbox_uid_base: int = Field(200_000, ge=1000, le=2_000_000_000)
    """As root, agent code of organization n runs as uid `sandbox_uid_base + n`."""
    allow_unsandboxed_agents: bool = False
    """Run agent code where the kernel offers no sandbox: it can then read everything that this
    installation's user can read, including other tenants' data."""

    # Addresses that tenants may reach
    agent_network: Literal["proxied", "shared"] = "proxied"
    """`proxied`: agents and builds have a network namespace each and reach the outside through a
    proxy. `shared`: they have the machine's network, with its loopback services."""
    egress_networks: str = ""
    """Networks (CIDR) that agents and builds may reach although they are not public."""
    provider_networks: str = ""
    """Networks (CIDR) on which model providers may be reached although they are not public."""
    allow_file_git: bool = False
    allow_private_addresses: bool = False
    local_webhooks: bool | None = Field(None, alias="allow_local_webhooks")

    # Retention
    trace_retention_days: int = Field(400, ge=0, le=36_500)
    """Default for long-lived traces; 0 keeps them forever."""
    trace_retention_short_days: int = Field(14, ge=0, le=36_500)
    webhook_log_days: int = Field(14, ge=1, le=3650)

    # Limits
    rate_limit_factor: float = Field(1.0, ge=0, le=1_000_000)
    """Factor of every rate limit; 0 turns them off."""
    body_memory_mb: int = Field(256, ge=32, le=65_536)
    """Request bodies that a web process holds; beyond it requests answer 503."""
    max_deployments: int = Field(100, ge=1, le=100_000)
    """Deployments of an organization."""
    max_revisions_per_day: int = Field(500, ge=1, le=100_000)
    """Revisions that an organization may create in 24 hours."""
    max_build_storage_mb: int = Field(102_400, ge=512, le=1_000_000_000)
    """Finished builds of an organization on disk: beyond it the oldest are removed."""
    max_queued_builds: int = Field(50, ge=1, le=10_000)
    """Unfinished revisions of an organization."""
    max_queued_runs: int = Field(20_000, ge=1, le=1_000_000)
    """Pending agent runs of an organization."""
    max_queued_runs_per_deployment: int = Field(10_000, ge=1, le=1_000_000)
    max_experiment_runs: int = Field(32, ge=1, le=10_000)
    """Open agent runs of an organization that experiments started."""
    max_prompt_storage_mb: int = Field(1024, ge=1, le=1_000_000)
    """Commits of all prompts of a workspace."""
    max_dataset_storage_mb: int = Field(102_400, ge=1, le=1_000_000_000)
    """Examples of a workspace, in all versions, with their attachments."""
    max_feedback_storage_mb: int = Field(10_240, ge=1, le=1_000_000_000)
    max_thread_storage_mb: int = Field(102_400, ge=1, le=1_000_000_000)
    """Threads of a workspace's agents, with their runs and checkpoints."""
    max_store_storage_mb: int = Field(10_240, ge=1, le=1_000_000_000)
    """Store items of a workspace's agents."""
    dataset_restore_days: int = Field(7, ge=0, le=365)
    """Days in which a deleted dataset can be restored."""
    max_body_bytes: int = Field(26_214_400, ge=1_048_576, le=1_073_741_824)

    @property
    def instance(self) -> Instance:
        """The paths of this data folder."""
        return Instance(self.data_dir.resolve())

    @property
    def allow_local_webhooks(self) -> bool:
        """Default: only with the embedded database, that is on a single user's machine."""
        return self.database_url is None if self.local_webhooks is None else self.local_webhooks

    @property
    def starts_playground(self) -> bool:
        """Whether the supervisor starts the playground's own processes."""
        return self.playground_processes > 0 and self.playground_url is None

    @property
    def base_url(self) -> str:
        return (self.public_url or f"http://127.0.0.1:{self.port}").rstrip("/")

    @property
    def api_base_url(self) -> str:
        return (self.public_api_url or self.base_url).rstrip("/")

    @property
    def beacon_base_url(self) -> str:
        return (self.public_beacon_url or self.api_base_url).rstrip("/")

    @property
    def internal_base_url(self) -> str:
        return (self.internal_url or f"http://127.0.0.1:{self.port}").rstrip("/")

    @property
    def postgres_url(self) -> str:
        return self.database_url or self.instance.database_url

    @property
    def redis_address(self) -> str:
        return self.redis_url or self.instance.redis_url

    @property
    def broker_url(self) -> str:
        """The Redis URL in Celery's spelling, which differs for Unix sockets."""
        parts = urlsplit(self.redis_address)
        if parts.scheme != "unix":
            return self.redis_address
        database = dict(parse_qsl(parts.query)).get("db", "0")
        return f"redis+socket://{parts.path}?virtual_host={database}"

    @cached_property
    def proxies(self) -> list[str]:
        """Trusted networks. Raises `ValueError` for an invalid address or network."""
        networks = _split_list(self.trusted_proxies)
        return [str(ipaddress.ip_network(network, strict=False)) for network in networks]

    @cached_property
    def allowed_egress(self) -> tuple[str, ...]:
        """Networks of `egress_networks`. Raises `ValueError` for an invalid one."""
        networks = _split_list(self.egress_networks)
        return tuple(str(ipaddress.ip_network(network, strict=False)) for network in networks)

    @cached_property
    def allowed_providers(self) -> tuple[str, ...]:
        """Networks of `provider_networks`. Raises `ValueError` for an invalid one."""
        networks = _split_list(self.provider_networks)
        return tuple(str(ipaddress.ip_network(network, strict=False)) for network in networks)

    @cached_property
    def announced_addresses(self) -> dict[str, tuple[str, ...]]:
        """Addresses and networks of `/info` and its page, by direction.

        Raises `ValueError` for an invalid address, and for a network with host bits.
        """
        lists = {"egress": self.egress_addresses, "ingress": self.ingress_addresses}
        return {
            direction: tuple(_normalize_address(entry) for entry in _split_list(text))
            for direction, text in lists.items()
        }

    @property
    def oidc_apps(self) -> list[dict[str, object]]:
        """The identity provider in django-allauth's form."""
        if self.oidc_server_url is None or self.oidc_client_id is None:
            return []
        secret = self.oidc_client_secret
        return [
            {
                "provider_id": "oidc",
                "name": self.oidc_name,
                "client_id": self.oidc_client_id,
                "secret": secret.get_secret_value() if secret else "",
                "settings": {"server_url": self.oidc_server_url},
            }
        ]

    @property
    def origins(self) -> tuple[str, ...]:
        return _split_list(self.cors_origins)

    @property
    def hosts(self) -> list[str]:
        """The first one is the `Host` of requests that the installation makes to itself."""
        if self.allowed_hosts is not None:
            return list(_split_list(self.allowed_hosts))
        if self.public_url is None:
            return ["*"]
        urls = (
            *(self.base_url, self.internal_base_url),
            *(self.api_base_url, self.beacon_base_url),
        )
        names = [*filter(None, (urlsplit(url).hostname for url in urls)), *_LOOPBACK_NAMES]
        if self.agent_domain is not None:
            names.append(f".{self.agent_domain}")
        return list(dict.fromkeys(f"[{name}]" if ":" in name else name for name in names))

    @cached_property
    def secret_key_text(self) -> str:
        if self.secret_key is not None:
            return self.secret_key.get_secret_value()
        return self._load_or_create("secret_key", secrets.token_urlsafe(64))

    @cached_property
    def metrics_token_text(self) -> str:
        if self.metrics_token is not None:
            return self.metrics_token.get_secret_value()
        return self._load_or_create("metrics_token", secrets.token_urlsafe(32))

    @cached_property
    def fernet_keys(self) -> tuple[str, ...]:
        if self.encryption_keys is not None:
            return _split_list(self.encryption_keys.get_secret_value())
        from cryptography.fernet import Fernet  # noqa: PLC0415  (25 ms to import)

        return _split_list(self._load_or_create("encryption_keys", Fernet.generate_key().decode()))

    def _load_or_create(self, name: str, new_secret: str) -> str:
        """Return the secret of that name in the data folder; create it when it is missing."""
        folder = self.data_dir / "secrets"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path, draft = folder / name, folder / f".{name}.{os.getpid()}"
        if not path.exists():
            with open(draft, "w", opener=_private_file) as file:
                file.write(new_secret)
            # The hard link, not the check above, decides between processes that start together.
            with contextlib.suppress(FileExistsError):
                path.hardlink_to(draft)
            draft.unlink()
        return path.read_text().strip()


def _private_file(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@lru_cache
def env() -> Env:
    """Return the settings, read at the first call."""
    return Env()
