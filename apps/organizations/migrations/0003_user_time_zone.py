"""The time zone in which a user reads times; empty for that of the browser."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("organizations", "0002_owner_required_trigger")]

    operations = [
        migrations.AddField(
            model_name="user",
            name="time_zone",
            field=models.CharField(blank=True, max_length=64),
        ),
    ]
