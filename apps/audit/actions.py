"""The audit actions, and the fields recorded for each kind of target."""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """An action as `target_kind.verb`. The values are part of the public API."""

    ORGANIZATION_CREATED = "organization.created"
    ORGANIZATION_UPDATED = "organization.updated"
    ORGANIZATION_DELETED = "organization.deleted"
    OWNERSHIP_TRANSFERRED = "organization.ownership_transferred"
    WORKSPACE_CREATED = "workspace.created"
    WORKSPACE_UPDATED = "workspace.updated"
    WORKSPACE_DELETED = "workspace.deleted"

    MEMBER_INVITED = "member.invited"
    INVITATION_ACCEPTED = "member.invitation_accepted"
    INVITATION_REVOKED = "member.invitation_revoked"
    MEMBER_ADDED = "member.added"
    MEMBER_ROLE_CHANGED = "member.role_changed"
    MEMBER_REMOVED = "member.removed"
    MEMBER_LEFT = "member.left"
    ROLE_CREATED = "role.created"
    ROLE_UPDATED = "role.updated"
    ROLE_DELETED = "role.deleted"

    USER_SIGNED_UP = "user.signed_up"
    USER_SIGNED_IN = "user.signed_in"
    USER_SIGNED_OUT = "user.signed_out"
    USER_SIGN_IN_FAILED = "user.sign_in_failed"
    USER_UPDATED = "user.updated"
    USER_PASSWORD_CHANGED = "user.password_changed"  # noqa: S105
    USER_EMAIL_CHANGED = "user.email_changed"
    USER_SECOND_FACTOR_ADDED = "user.second_factor_added"
    USER_SECOND_FACTOR_REMOVED = "user.second_factor_removed"
    USER_SESSION_REVOKED = "user.session_revoked"
    CLIENT_SIGN_IN_DENIED = "user.client_sign_in_denied"

    KEY_CREATED = "key.created"
    KEY_UPDATED = "key.updated"
    KEY_ROTATED = "key.rotated"
    KEY_REVOKED = "key.revoked"
    SECRET_SET = "secret.set"  # noqa: S105
    SECRET_DELETED = "secret.deleted"  # noqa: S105
    TAG_CREATED = "tag.created"
    TAG_UPDATED = "tag.updated"
    TAG_DELETED = "tag.deleted"
    TAG_PUT_ON = "tag.put_on"
    TAG_TAKEN_OFF = "tag.taken_off"

    RATE_LIMIT_CHANGED = "rate_limit.changed"
    USAGE_LIMIT_SET = "usage_limit.set"
    USAGE_LIMIT_DELETED = "usage_limit.deleted"
    RETENTION_CHANGED = "retention.changed"
    PRICE_CHANGED = "price.changed"

    PROJECT_DELETED = "project.deleted"
    TRACES_DELETED = "traces.deleted"
    RUN_SHARED = "run.shared"
    RUN_UNSHARED = "run.unshared"
    PROMPT_CREATED = "prompt.created"
    PROMPT_UPDATED = "prompt.updated"
    PROMPT_PUBLISHED = "prompt.published"
    PROMPT_DELETED = "prompt.deleted"
    PROMPT_TAG_SET = "prompt_tag.set"
    PROMPT_TAG_DELETED = "prompt_tag.deleted"
    DATASET_CREATED = "dataset.created"
    DATASET_UPDATED = "dataset.updated"
    DATASET_DELETED = "dataset.deleted"
    DATASET_RESTORED = "dataset.restored"
    DATASET_SHARED = "dataset.shared"
    DATASET_UNSHARED = "dataset.unshared"
    DATASET_TAGGED = "dataset.tagged"
    ANNOTATION_QUEUE_CREATED = "annotation_queue.created"
    ANNOTATION_QUEUE_UPDATED = "annotation_queue.updated"
    ANNOTATION_QUEUE_DELETED = "annotation_queue.deleted"
    COMPARISON_DELETED = "comparison.deleted"
    EXPERIMENT_STARTED = "experiment.started"
    EXPERIMENT_CANCELLED = "experiment.cancelled"
    EXPERIMENT_RESUMED = "experiment.resumed"
    EXAMPLES_ERASED = "examples.erased"
    PROMPT_WEBHOOK_CREATED = "prompt_webhook.created"
    PROMPT_WEBHOOK_UPDATED = "prompt_webhook.updated"
    PROMPT_WEBHOOK_DELETED = "prompt_webhook.deleted"
    ALERT_CREATED = "alert.created"
    ALERT_UPDATED = "alert.updated"
    ALERT_DELETED = "alert.deleted"
    EVALUATOR_CREATED = "evaluator.created"
    EVALUATOR_UPDATED = "evaluator.updated"
    EVALUATOR_DELETED = "evaluator.deleted"
    EVALUATOR_RULE_CREATED = "evaluator_rule.created"
    EVALUATOR_RULE_UPDATED = "evaluator_rule.updated"
    EVALUATOR_RULE_DELETED = "evaluator_rule.deleted"
    EXPORT_CREATED = "export.created"
    EXPORT_DESTINATION_CREATED = "export_destination.created"
    EXPORT_DESTINATION_UPDATED = "export_destination.updated"

    DEPLOYMENT_CREATED = "deployment.created"
    DEPLOYMENT_UPDATED = "deployment.updated"
    DEPLOYMENT_DELETED = "deployment.deleted"
    DEPLOYMENT_STOPPED = "deployment.stopped"
    DEPLOYMENT_STARTED = "deployment.started"
    DEPLOYMENT_RESTARTED = "deployment.restarted"
    DEPLOYMENT_ROLLED_BACK = "deployment.rolled_back"
    DEPLOYMENT_SECRETS_CHANGED = "deployment.secrets_changed"
    WEBHOOK_SECRET_REPLACED = "deployment.webhook_secret_replaced"  # noqa: S105
    DEPLOYMENT_WEBHOOK_CREATED = "deployment_webhook.created"
    DEPLOYMENT_WEBHOOK_UPDATED = "deployment_webhook.updated"
    DEPLOYMENT_WEBHOOK_DELETED = "deployment_webhook.deleted"
    REVISION_CREATED = "revision.created"
    REVISION_INTERRUPTED = "revision.interrupted"

    IMPERSONATION_STARTED = "impersonation.started"
    IMPERSONATION_ENDED = "impersonation.ended"
    SWITCH_CHANGED = "switch.changed"
    AUDIT_EXPORTED = "audit.exported"
    AUDIT_FORGOTTEN = "audit.forgotten"


# Actions whose effect outlasts an impersonated session: credentials, rights of other accounts, and
# ways out for data.
FORBIDDEN_WHILE_IMPERSONATING = frozenset(
    {
        Action.MEMBER_INVITED,
        Action.INVITATION_ACCEPTED,
        Action.MEMBER_ADDED,
        Action.MEMBER_ROLE_CHANGED,
        Action.ROLE_CREATED,
        Action.ROLE_UPDATED,
        Action.RUN_SHARED,
        Action.PROMPT_PUBLISHED,
        Action.DATASET_SHARED,
        Action.PROMPT_WEBHOOK_CREATED,
        Action.PROMPT_WEBHOOK_UPDATED,
        Action.ALERT_CREATED,
        Action.ALERT_UPDATED,
        Action.EVALUATOR_CREATED,
        Action.EVALUATOR_UPDATED,
        Action.EVALUATOR_RULE_CREATED,
        Action.EVALUATOR_RULE_UPDATED,
        Action.EXPORT_CREATED,
        Action.EXPORT_DESTINATION_CREATED,
        Action.EXPORT_DESTINATION_UPDATED,
        Action.WEBHOOK_SECRET_REPLACED,
        Action.DEPLOYMENT_WEBHOOK_CREATED,
        Action.DEPLOYMENT_WEBHOOK_UPDATED,
        Action.DEPLOYMENT_CREATED,
        Action.DEPLOYMENT_UPDATED,
        Action.DEPLOYMENT_SECRETS_CHANGED,
        Action.KEY_CREATED,
        Action.KEY_ROTATED,
        Action.SECRET_SET,  # the address of a model server is one, too
        Action.USER_PASSWORD_CHANGED,
        Action.USER_EMAIL_CHANGED,
        Action.USER_SECOND_FACTOR_ADDED,
        Action.USER_SECOND_FACTOR_REMOVED,
        Action.OWNERSHIP_TRANSFERRED,
        Action.ORGANIZATION_DELETED,
    }
)

# Only these fields are recorded, so that a new model field is not logged by accident. Secrets are
# recorded by name.
FIELDS: dict[str, frozenset[str]] = {
    "organization": frozenset(
        {
            "name",
            "display_name",
            "is_personal",
            "public_sharing_disabled",
            "personal_keys_disabled",
            "max_key_days",
            "unshare_all",
            "owner",
            "plan",
        }
    ),
    "workspace": frozenset({"name", "display_name", "handle", "is_personal"}),
    "member": frozenset(
        {"email", "role", "workspace_role", "workspaces", "expires_at", "organization_role"}
    ),
    "role": frozenset({"name", "display_name", "description", "permissions", "access_scope"}),
    "user": frozenset({"email", "name", "is_active", "is_staff", "is_superuser", "method", "ip"}),
    "session": frozenset({"ip", "user_agent", "created_at", "last_seen_at"}),
    "key": frozenset(
        {
            "name",
            "description",
            "short_key",
            "audience",
            "prefix",
            "kind",
            "scopes",
            "workspaces",
            "read_only",
            "expires_at",
            "overlap_until",
            "owner",
        }
    ),
    "secret": frozenset({"names"}),
    "tag": frozenset({"key", "value", "description", "resource_type", "resource_id"}),
    "rate_limit": frozenset({"row", "category", "factor", "reason"}),
    "usage_limit": frozenset({"limit_type", "limit_value"}),
    "retention": frozenset(
        {
            "default_trace_tier",
            "trace_tier",
            "longlived_ttl_seconds",
            "shortlived_ttl_seconds",
            "apply_to_all_projects",
        }
    ),
    "price": frozenset(
        {"name", "match_pattern", "prompt_cost", "completion_cost", "provider", "start_time"}
    ),
    "project": frozenset({"name", "description", "trace_tier"}),
    "annotation_queue": frozenset(
        {
            *("name", "description", "num_reviewers_per_item", "reviewer_access_mode"),
            *("feedback_keys", "reviewers"),
        }
    ),
    "comparison": frozenset({"name", "experiment_ids"}),
    "experiment": frozenset({"dataset_id", "deployment", "run_count", "finished"}),
    "traces": frozenset({"count", "trace_ids", "session_id", "filter"}),
    "run": frozenset({"trace_id"}),
    "prompt": frozenset({"type", "description", "tags", "is_public", "is_archived"}),
    "prompt_tag": frozenset({"tag", "commit"}),
    "dataset": frozenset(
        {
            *("name", "description", "data_type", "example_count", "tag", "as_of", "examples"),
            "with_experiments",
        }
    ),
    "examples": frozenset({"count", "example_ids"}),
    "prompt_webhook": frozenset(
        {"url", "triggers", "headers", "include_prompts", "exclude_prompts"}
    ),
    "alert": frozenset(
        {
            *("name", "type", "attribute", "aggregation", "operator", "filter", "window_minutes"),
            *("threshold", "warning_threshold", "threshold_window_minutes"),
            *("threshold_multiplier", "warning_multiplier", "is_enabled", "silenced_until"),
            *("session_id", "deployment_id", "channels"),
        }
    ),
    "evaluator": frozenset({"name", "type", "prompt", "commit", "feedback_keys", "code_digest"}),
    "evaluator_rule": frozenset(
        {
            *("name", "dataset_id", "session_id", "evaluator_id", "is_enabled", "sampling_rate"),
            *("filter", "max_calls_per_day", "weekly_limit_usd"),
        }
    ),
    "export": frozenset({"session_id", "start_time", "end_time", "interval_hours", "destination"}),
    "export_destination": frozenset(
        {"display_name", "bucket_name", "prefix", "region", "endpoint_url"}
    ),
    "deployment": frozenset(
        {
            "name",
            "slug",
            "source",
            "repo_url",
            "repo_ref",
            "config_path",
            "deployment_type",
            "build_on_push",
            "names",
            "revision",
            "status",
            "project",
        }
    ),
    "deployment_webhook": frozenset({"url", "events", "headers", "deployment_id"}),
    "revision": frozenset({"number", "commit_sha", "repo_ref", "source", "status", "names"}),
    "switch": frozenset({"on"}),
    "admin": frozenset({"model", "fields"}),
    "audit": frozenset({"before", "count", "format", "start_time", "end_time", "filters"}),
}
