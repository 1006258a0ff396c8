"""The help text of a limit's category; the schema is unchanged."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rate_limits", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="limitfactor",
            name="category",
            field=models.CharField(
                blank=True, help_text="Empty: every row without its own factor.", max_length=40
            ),
        ),
    ]
