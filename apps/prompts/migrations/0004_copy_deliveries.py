"""Copy the deliveries to the log of all webhooks. The old table is removed afterwards."""

from django.db import migrations

COPY = """
INSERT INTO webhooks_delivery (
    id, workspace_id, created_at, kind, endpoint_id, subject_id, event, payload, message_id,
    is_replay, status, attempts, due_at, response_status, last_error, log, delivered_at
)
SELECT d.id, d.workspace_id, d.created_at, 'prompt', d.webhook_id, c.repository_id, d.event,
    (jsonb_build_object(
        'event', d.event, 'prompt_id', c.repository_id, 'prompt_name', r.handle,
        'commit_hash', c.commit_hash, 'created_at', d.created_at, 'created_by', d.author
    ) || CASE WHEN d.event = 'commit' THEN '{}'::jsonb
         ELSE jsonb_build_object('tag_name', d.tag_name) END)::text::json,
    d.id, false, d.status, d.attempts, d.due_at, d.response_status, d.last_error, d.log,
    d.delivered_at
FROM prompts_promptwebhookdelivery d
JOIN prompts_commit c ON c.id = d.commit_id
JOIN prompts_repository r ON r.id = c.repository_id
ON CONFLICT (id) DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [
        ("prompts", "0003_tagmove"),
        ("webhooks", "0001_initial"),
    ]

    operations = [
        # Reversible without effect: the rows of the old table are unchanged.
        migrations.RunSQL(COPY, migrations.RunSQL.noop),
    ]
