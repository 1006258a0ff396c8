from django.db import migrations

# The counts of earlier versions; the index `example_as_of` holds both columns.
FILL = """
UPDATE datasets_datasetversion v SET added_count = e.added
FROM (
    SELECT workspace_id, dataset_id, valid_from, count(*) AS added
    FROM datasets_examplerevision GROUP BY workspace_id, dataset_id, valid_from
) e
WHERE e.workspace_id = v.workspace_id AND e.dataset_id = v.dataset_id AND e.valid_from = v.as_of
"""


class Migration(migrations.Migration):
    dependencies = [
        ("datasets", "0003_datasetversion_added_count"),
    ]

    operations = [
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
