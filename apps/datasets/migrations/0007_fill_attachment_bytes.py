from django.db import migrations

# Each attachment counts once, in the first revision that has it.
FILL = """
UPDATE datasets_examplerevision r SET attachment_bytes = (
    SELECT coalesce(sum(added.size), 0)
    FROM (
        SELECT DISTINCT entry->>'path', (entry->>'size')::bigint AS size
        FROM jsonb_array_elements(r.attachments) AS entry
        WHERE NOT EXISTS (
            SELECT FROM datasets_examplerevision e
            WHERE e.workspace_id = r.workspace_id AND e.example_id = r.example_id
              AND e.valid_from < r.valid_from
              AND e.attachments @> jsonb_build_array(
                  jsonb_build_object('path', entry->>'path')
              )
        )
    ) added
)
WHERE jsonb_typeof(r.attachments) = 'array'
"""


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0006_examplerevision_attachment_bytes"),
    ]

    operations = [
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
