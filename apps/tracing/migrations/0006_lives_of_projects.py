from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("organizations", "0001_initial"),
        ("tracing", "0005_whole"),
    ]

    operations = [
        migrations.AddField(
            model_name="project",
            name="long_days",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddIndex(
            model_name="project",
            index=models.Index(
                condition=models.Q(("deleted_at__isnull", False)),
                fields=["workspace"],
                name="project_deleted",
            ),
        ),
        migrations.AddIndex(
            model_name="feedbacktoken",
            index=models.Index(fields=["expires_at"], name="feedback_token_expiry"),
        ),
    ]
