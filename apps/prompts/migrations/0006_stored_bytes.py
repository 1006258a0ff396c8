from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("prompts", "0005_delete_promptwebhookdelivery"),
    ]

    operations = [
        migrations.AddField(
            model_name="repository",
            name="stored_bytes",
            field=models.BigIntegerField(db_default=0, default=0),
        ),
        migrations.RunSQL(
            "UPDATE prompts_repository r SET stored_bytes = c.size FROM ("
            " SELECT repository_id, sum(octet_length(manifest::text)) AS size"
            " FROM prompts_commit GROUP BY repository_id"
            ") c WHERE c.repository_id = r.id",
            migrations.RunSQL.noop,
        ),
    ]
