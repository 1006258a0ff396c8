"""The width of a chart; existing charts keep one column of the grid."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("monitoring", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="chart",
            name="columns",
            field=models.PositiveSmallIntegerField(default=1),
        ),
        migrations.AddConstraint(
            model_name="chart",
            constraint=models.CheckConstraint(
                condition=models.Q(columns__range=(1, 3)), name="chart_columns_range"
            ),
        ),
    ]
