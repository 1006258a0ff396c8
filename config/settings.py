"""Django's settings, one file for every environment: they differ by values, see config/env.py."""

from __future__ import annotations

import sys
from urllib.parse import parse_qsl, unquote, urlsplit

import django_stubs_ext

from config.env import BASE_DIR, env

# `ModelAdmin[User]` and other generics of Django are subscriptable for type checkers only.
django_stubs_ext.monkeypatch()

ENV = env()

DEBUG = ENV.debug
SECRET_KEY = ENV.secret_key_text
ALLOWED_HOSTS = ENV.hosts
CORS_ORIGINS = ENV.origins
BASE_URL = ENV.base_url
API_BASE_URL = ENV.api_base_url
BEACON_BASE_URL = ENV.beacon_base_url
INTERNAL_URL = ENV.internal_base_url
DATA_DIR = ENV.data_dir.resolve()

INSTALLED_APPS = [
    # For `runserver` alone: it costs every other process 0.4 s of imports.
    *(["daphne"] if "runserver" in sys.argv else []),
    "apps.operators.admin_config.OperatorsAdminConfig",  # django.contrib.admin with our own site
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.postgres",  # registers operator classes in indexes
    "django_linear_migrations",
    "rest_framework",
    "drf_spectacular",
    "channels",
    "django_celery_beat",
    "django_htmx",
    "template_partials",
    "csp",
    "waffle",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "apps.core",
    "apps.web_ui",
    "apps.audit",
    "apps.webhooks",
    "apps.organizations",
    "apps.providers",
    "apps.api_keys",
    "apps.usage",
    "apps.rate_limits",
    "apps.billing",
    "apps.trace_store",
    "apps.feedback",
    "apps.tracing",
    "apps.ingest",
    "apps.datasets",
    "apps.experiments",
    "apps.annotation",
    "apps.experiment_jobs",
    "apps.monitoring",
    "apps.exports",
    "apps.prompts",
    "apps.deployments",
    "apps.agent_server",
    "apps.alerts",
    "apps.agent_runtime",
    "apps.playground",
    "apps.evaluators",
    "apps.accounts",
    "apps.platform_mcp",
    "apps.console",
    "apps.operators",
]

MIDDLEWARE = [
    "apps.core.http.middleware.RequestIdMiddleware",
    "apps.core.http.middleware.CanonicalPathMiddleware",
    "apps.agent_server.web.middleware.AgentMiddleware",
    "apps.core.http.middleware.CorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "apps.core.http.middleware.PageGZipMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "apps.core.http.middleware.HostMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "apps.rate_limits.enforcement.RateLimitMiddleware",
    "apps.core.http.middleware.PreflightMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "apps.operators.impersonation.ImpersonationMiddleware",
    "apps.web_ui.time_zone.TimeZoneMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "csp.middleware.CSPMiddleware",
    "apps.core.http.middleware.ErrorMiddleware",
]

ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "apps.console.page_context.page_context",
            ],
        },
    },
]


def _database(url: str, **more: str) -> dict[str, object]:
    """Django's connection settings for a `postgresql://` URL (a socket folder goes in `host=`)."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "slipway",
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", parts.hostname or ""),
        "PORT": str(parts.port or options.pop("port", "")),
        # Requests run on a few lasting threads, each with its own connection;
        # apps.core.connections closes one whose server went away.
        "CONN_MAX_AGE": None,
        # psycopg prepares only the statements that request it.
        "OPTIONS": {
            "application_name": "slipway",
            "prepare_threshold": 1_000_000_000,
            **more,
            **options,
        },
        "TEST": {"NAME": f"test_{parts.path.lstrip('/') or 'slipway'}"},
    }


DATABASES = {"default": _database(ENV.postgres_url)}
if ENV.billing_database_url:
    # Billing is in another region and not essential: fail fast.
    DATABASES["billing"] = _database(ENV.billing_database_url, connect_timeout="3")
IS_DATABASE_EMBEDDED = ENV.database_url is None
DATABASE_ROUTERS = ["apps.billing.database.BillingRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = ENV.redis_address
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.redis.RedisCache",
        "LOCATION": REDIS_URL,
        # The default, pickle, executes what it reads.
        "OPTIONS": {"serializer": "apps.core.json.CacheSerializer"},
    },
    "rate_limits": {"BACKEND": "apps.rate_limits.cache.CountingCache", "LOCATION": REDIS_URL},
    "switches": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "switches",
        "TIMEOUT": 1,
    },
}
RATELIMIT_USE_CACHE = "rate_limits"
# Feature switches (apps/core/feature_switches.py) are cached per process, for a second.
WAFFLE_CACHE_NAME = "switches"
WAFFLE_ENABLE_ADMIN_PAGES = False  # /admin/switches/ records changes in the audit log
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "slipway:channels"},
    }
}

CELERY_BROKER_URL = ENV.broker_url
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_DEFAULT_QUEUE = "periodic"
CELERY_TASK_ROUTES = {
    "agent_server.*": {"queue": "runs"},
    "deployments.build_revision": {"queue": "builds"},
}
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_TIMEZONE = "UTC"
# Sweepers find the rows whose message was lost.
CELERY_BEAT_SCHEDULE = {
    "organizations.mail_invitations": {
        "task": "organizations.mail_invitations",
        "schedule": 60.0,
    },
    "api_keys.end_client_sessions": {
        "task": "api_keys.end_client_sessions",
        "schedule": 600.0,
    },
    "trace_store.create_partitions": {"task": "trace_store.create_partitions", "schedule": 3600.0},
    "trace_store.process_pending_runs": {
        "task": "trace_store.process_pending_runs",
        "schedule": 1.0,
        # One task runs at a time; messages sent meanwhile are redundant.
        "options": {"expires": 2},
    },
    "trace_store.index_term_backlog": {
        "task": "trace_store.index_term_backlog",
        "schedule": 15.0,
        "options": {"expires": 15},
    },
    "trace_store.rebuild_rollups": {
        "task": "trace_store.rebuild_rollups",
        "schedule": 5.0,
        "options": {"expires": 30},
    },
    "trace_store.compact_run_counts": {"task": "trace_store.compact_run_counts", "schedule": 300.0},
    "feedback.attach_to_runs": {"task": "feedback.attach_to_runs", "schedule": 5.0},
    "feedback.compute_formulas": {"task": "feedback.compute_formulas", "schedule": 60.0},
    "feedback.delete_expired_tokens": {
        "task": "feedback.delete_expired_tokens",
        "schedule": 3600.0,
    },
    "ingest.retry_deferred_operations": {
        "task": "ingest.retry_deferred_operations",
        "schedule": 60.0,
    },
    "ingest.close_quiet_traces": {"task": "ingest.close_quiet_traces", "schedule": 30.0},
    "tracing.remove_deleted_projects": {
        "task": "tracing.remove_deleted_projects",
        "schedule": 600.0,
    },
    "tracing.continue_deletions": {"task": "tracing.continue_deletions", "schedule": 60.0},
    "tracing.expire": {"task": "tracing.expire", "schedule": 10_800.0},
    "billing.open_accounts": {"task": "billing.open_accounts", "schedule": 60.0},
    "usage.update_usage_days": {
        "task": "usage.update_usage_days",
        "schedule": 60.0,
        "options": {"expires": 55},
    },
    "usage.measure_storage": {
        "task": "usage.measure_storage",
        "schedule": 120.0,
        "options": {"expires": 110},
    },
    "datasets.sync_indexes": {
        "task": "datasets.sync_indexes",
        "schedule": 10.0,
        "options": {"expires": 10},
    },
    "datasets.remove_deleted": {"task": "datasets.remove_deleted", "schedule": 600.0},
    "experiment_jobs.advance": {
        "task": "experiment_jobs.advance",
        "schedule": 1.0,
        "options": {"expires": 2},
    },
    "playground.execute_calls": {
        "task": "playground.execute_calls",
        "schedule": 1.0,
        "options": {"expires": 2},
    },
    "evaluators.evaluate": {
        "task": "evaluators.evaluate",
        "schedule": 1.0,
        "options": {"expires": 2},
    },
    "evaluators.advance_backfills": {
        "task": "evaluators.advance_backfills",
        "schedule": 2.0,
        "options": {"expires": 4},
    },
    "evaluators.delete_old_trials": {"task": "evaluators.delete_old_trials", "schedule": 3600.0},
    "playground.delete_old_calls": {"task": "playground.delete_old_calls", "schedule": 3600.0},
    "experiment_jobs.delete_old_steps": {
        "task": "experiment_jobs.delete_old_steps",
        "schedule": 3600.0,
    },
    "exports.schedule_exports": {"task": "exports.schedule_exports", "schedule": 60.0},
    "deployments.sweep": {"task": "deployments.sweep", "schedule": 15.0},
    "agent_server.fire_crons": {"task": "agent_server.fire_crons", "schedule": 1.0},
    "agent_server.cancel_beyond_storage": {
        "task": "agent_server.cancel_beyond_storage",
        "schedule": 60.0,
    },
    "agent_server.sweep_runs": {"task": "agent_server.sweep_runs", "schedule": 3.0},
    "agent_server.close_traces": {"task": "agent_server.close_traces", "schedule": 5.0},
    "agent_server.sweep_streams": {"task": "agent_server.sweep_streams", "schedule": 30.0},
    "agent_server.purge_threads": {"task": "agent_server.purge_threads", "schedule": 60.0},
    "agent_server.sweep_threads": {"task": "agent_server.sweep_threads", "schedule": 60.0},
    "agent_server.deliver_webhooks": {"task": "agent_server.deliver_webhooks", "schedule": 2.0},
    "alerts.evaluate": {"task": "alerts.evaluate", "schedule": 15.0, "options": {"expires": 15}},
    "webhooks.deliver": {"task": "webhooks.deliver", "schedule": 2.0},
    "webhooks.delete_old_deliveries": {
        "task": "webhooks.delete_old_deliveries",
        "schedule": 3600.0,
    },
    "agent_server.forget_webhooks": {"task": "agent_server.forget_webhooks", "schedule": 3600.0},
    "agent_server.sweep_store": {"task": "agent_server.sweep_store", "schedule": 60.0},
}

AUTH_USER_MODEL = "organizations.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "home"

# Sign-up, address verification, second factors, identity providers: apps/accounts.
SIGN_UP = ENV.sign_up
ACCOUNT_ADAPTER = "apps.accounts.adapters.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_SIGNUP_FORM_CLASS = "apps.accounts.forms.SignUpForm"
# Without a mail server no address can be verified.
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if ENV.email_url else "none"
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_LOGIN_ON_EMAIL_CONFIRMATION = True
ACCOUNT_MAX_EMAIL_ADDRESSES = 5
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if BASE_URL.startswith("https://") else "http"
ACCOUNT_SESSION_REMEMBER = True
MFA_ADAPTER = "apps.accounts.adapters.MFAAdapter"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
MFA_TOTP_ISSUER = "Slipway"
MFA_TOTP_TOLERANCE = 1
# Without a mail server no address can be verified.
MFA_ALLOW_UNVERIFIED_EMAIL = ENV.email_url is None
SOCIALACCOUNT_ADAPTER = "apps.accounts.adapters.SocialAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": ENV.oidc_apps}}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# SDKs send paths with and without a slash, and some drop the body on a redirect.
APPEND_SLASH = False

_MAIL = urlsplit(ENV.email_url.get_secret_value() if ENV.email_url else "")
EMAIL_HOST = _MAIL.hostname or ""
EMAIL_PORT = _MAIL.port or (465 if _MAIL.scheme == "smtps" else 587)
EMAIL_HOST_USER = unquote(_MAIL.username or "")
EMAIL_HOST_PASSWORD = unquote(_MAIL.password or "")
EMAIL_USE_SSL = _MAIL.scheme == "smtps"
# Without a user name there is no password to protect; local mail servers have no TLS.
EMAIL_USE_TLS = _MAIL.scheme == "smtp" and _MAIL.username is not None
EMAIL_TIMEOUT = 20
DEFAULT_FROM_EMAIL = ENV.email_from

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "apps.core.http.static_files.AppFinder",
]


def _object_storage() -> dict[str, object]:
    """Return the storage of objects: a folder or an S3 bucket."""
    if ENV.object_storage_bucket is None:
        folder = {"location": DATA_DIR / "objects"}
        return {"BACKEND": "apps.core.object_storage.files.FileObjectStorage", "OPTIONS": folder}
    key, secret = ENV.object_storage_access_key, ENV.object_storage_secret_key
    options = {
        "bucket_name": ENV.object_storage_bucket,
        "endpoint_url": ENV.object_storage_endpoint,
        "region_name": ENV.object_storage_region,
        # Without a key, the role of the machine applies.
        "access_key": key and key.get_secret_value(),
        "secret_key": secret and secret.get_secret_value(),
        "location": ENV.object_storage_prefix,
    }
    return {"BACKEND": "apps.core.object_storage.s3.S3ObjectStorage", "OPTIONS": options}


STORAGES = {
    "default": _object_storage(),
    "staticfiles": {"BACKEND": "apps.core.http.static_files.ModuleManifestStorage"},
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = False

DATA_UPLOAD_MAX_MEMORY_SIZE = ENV.max_body_bytes
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_NAME = "slipway_session"
# Not `Strict`: links from mail and redirects of OIDC would arrive without the session. Changes are
# POST requests, which require the CSRF token.
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_HTTPONLY = CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_NAME = "slipway_csrf"
CSRF_FAILURE_VIEW = "apps.core.http.middleware.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = BASE_URL.startswith("https://")
if BASE_URL.startswith("https://"):
    CSRF_TRUSTED_ORIGINS = [BASE_URL]
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
    # The prefix makes browsers limit the cookie to this host, this path and https.
    SESSION_COOKIE_NAME = "__Host-slipway_session"
    CSRF_COOKIE_NAME = "__Host-slipway_csrf"
# Local agents use http, so the proxy in front redirects (W008). HSTS for other hosts of the domain
# is the operator's decision (W005, W021).
SILENCED_SYSTEM_CHECKS = [
    *("security.W005", "security.W008", "security.W021"),
    # Views with a handwritten description (ADR 0018).
    *("drf_spectacular.W001", "drf_spectacular.W002"),
]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "media-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
    }
}

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["apps.core.drf.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["apps.core.drf.JSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": ["apps.api_keys.authentication.CallerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["apps.core.drf.DenyByDefault"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "apps.core.api.exception_handler",
    "UNAUTHENTICATED_USER": None,
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Slipway",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    # It warns about names that it generates itself.
    "DISABLE_ERRORS_AND_WARNINGS": True,
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"()": "apps.core.observability.logs.build_formatter", "as_json": ENV.log_json},
    },
    "filters": {"refusals": {"()": "apps.core.observability.logs.WebSocketRefusalFilter"}},
    "handlers": {
        "console": {
            "class": "logging.StreamHandler",
            "formatter": "line",
            "filters": ["refusals"],
        }
    },
    "root": {"handlers": ["console"], "level": ENV.log_level},
    "loggers": {
        "django.request": {"level": "ERROR"},
        "django.server": {"level": "WARNING"},
        "uvicorn.access": {"level": "WARNING"},
        "httpx": {"level": "WARNING"},
    },
}

# Settings read by the apps; docs/settings.md describes them.
METRICS_TOKEN = ENV.metrics_token_text
METRICS_LOOPBACK = ENV.metrics_loopback
SENTRY_DSN = ENV.sentry_dsn.get_secret_value() if ENV.sentry_dsn else ""
SENTRY_ENVIRONMENT = ENV.sentry_environment
ENCRYPTION_KEYS = ENV.fernet_keys
REGION = ENV.region
RATE_LIMIT_FACTOR = ENV.rate_limit_factor
AGENT_DOMAIN = ENV.agent_domain
WEB_THREADS = ENV.web_threads
PLAYGROUND_PROCESSES = ENV.playground_processes
PLAYGROUND_URL = ENV.playground_url
PLAYGROUND_SOCKET = ENV.instance.playground_socket
SAMPLE_DATA = ENV.sample_data
AGENT_RUNS_PER_WORKER = ENV.agent_runs_per_worker
AGENT_RUNS_ORGANIZATION_PERCENT = ENV.agent_runs_organization_percent
AGENT_RUNS_DEPLOYMENT_PERCENT = ENV.agent_runs_deployment_percent
AGENT_FRAMES_PERCENT = ENV.agent_frames_percent
AGENT_RUN_LEASE_SECONDS = ENV.agent_run_lease_seconds
AGENT_RUN_MAX_ATTEMPTS = ENV.agent_run_max_attempts
AGENT_RUN_TIMEOUT_SECONDS = ENV.agent_run_timeout_seconds
RESUMABLE_STREAM_TTL_SECONDS = ENV.resumable_stream_ttl_seconds
STREAM_BYTES_PER_RUN = ENV.stream_run_mb * 1_048_576
STREAM_BYTES_PER_DEPLOYMENT = ENV.stream_deployment_mb * 1_048_576
STREAM_BYTES = ENV.redis_memory_mb * 1_048_576 // 2
GRAPH_HOST_MEMORY_MB = ENV.graph_host_memory_mb
GRAPH_HOST_PROCESSES = ENV.graph_host_processes
GRAPH_HOSTS_PER_WORKER = ENV.graph_hosts_per_worker
WARM_GRAPH_HOSTS = ENV.warm_graph_hosts
AGENT_CPU_WEIGHT = ENV.agent_cpu_weight
BUILD_CPU_WEIGHT = ENV.build_cpu_weight
BUILD_THREADS = ENV.build_threads
BUILD_MEMORY_MB = ENV.build_memory_mb
BUILD_TIMEOUT_SECONDS = ENV.build_timeout_seconds
GRAPH_IMPORT_TIMEOUT_SECONDS = ENV.graph_import_timeout_seconds
BUILD_DISK_MB = ENV.build_disk_mb
SANDBOX_UID_BASE = ENV.sandbox_uid_base
ALLOW_UNSANDBOXED_AGENTS = ENV.allow_unsandboxed_agents
AGENT_NETWORK = ENV.agent_network
EGRESS_NETWORKS = ENV.allowed_egress
ANNOUNCED_ADDRESSES = ENV.announced_addresses
PROVIDER_NETWORKS = ENV.allowed_providers
ALLOW_FILE_GIT = ENV.allow_file_git
ALLOW_PRIVATE_ADDRESSES = ENV.allow_private_addresses
ALLOW_LOCAL_WEBHOOKS = ENV.allow_local_webhooks
TRACE_RETENTION_DAYS = ENV.trace_retention_days
TRACE_RETENTION_SHORT_DAYS = ENV.trace_retention_short_days
WEBHOOK_LOG_DAYS = ENV.webhook_log_days
BODY_MEMORY_BYTES = ENV.body_memory_mb * 1_048_576
MAX_BODY_BYTES = ENV.max_body_bytes
DATASET_RESTORE_DAYS = ENV.dataset_restore_days
MAX_DEPLOYMENTS = ENV.max_deployments
MAX_REVISIONS_PER_DAY = ENV.max_revisions_per_day
MAX_BUILD_STORAGE_BYTES = ENV.max_build_storage_mb * 1_048_576
MAX_QUEUED_BUILDS = ENV.max_queued_builds
MAX_QUEUED_RUNS = ENV.max_queued_runs
MAX_QUEUED_RUNS_PER_DEPLOYMENT = ENV.max_queued_runs_per_deployment
MAX_EXPERIMENT_RUNS = ENV.max_experiment_runs
MAX_PROMPT_STORAGE_BYTES = ENV.max_prompt_storage_mb * 1_048_576
MAX_DATASET_STORAGE_BYTES = ENV.max_dataset_storage_mb * 1_048_576
MAX_FEEDBACK_STORAGE_BYTES = ENV.max_feedback_storage_mb * 1_048_576
MAX_THREAD_STORAGE_BYTES = ENV.max_thread_storage_mb * 1_048_576
MAX_STORE_STORAGE_BYTES = ENV.max_store_storage_mb * 1_048_576
LARGE_PAYLOAD_BYTES = ENV.large_payload_bytes
