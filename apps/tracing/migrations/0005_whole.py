from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tracing", "0004_rollups")]

    operations = []
