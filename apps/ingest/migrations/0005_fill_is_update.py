"""Fill `is_update` from the body, whose first member it is in rows of earlier versions.

The rows are few: each waits for its run for a limited time. The bytes are compared, because
PostgreSQL rejects U+0000 in the rest of the body when it parses one member as text.
"""

from django.db import migrations

FILL = """
UPDATE ingest_deferredoperation
SET is_update = substring(body FOR 17) = convert_to('{"is_update":true', 'UTF8')
WHERE is_update IS NULL
"""


class Migration(migrations.Migration):
    dependencies = [("ingest", "0004_deferredoperation_is_update")]

    operations = [migrations.RunSQL(FILL, migrations.RunSQL.noop)]
