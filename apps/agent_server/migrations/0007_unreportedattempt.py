"""Attempts whose process ended before it reported the end of its trace."""

import apps.core.ids
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("agent_server", "0006_agentrun_indexes"),
        ("organizations", "0002_owner_required_trigger"),
    ]

    operations = [
        migrations.CreateModel(
            name='UnreportedAttempt',
            fields=[
                ('id', models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('run_id', models.UUIDField()),
                ('attempt', models.PositiveIntegerField()),
                ('error', models.TextField(blank=True)),
                ('ended_at', models.DateTimeField()),
                ('check_count', models.PositiveSmallIntegerField(db_default=0, default=0)),
                ('due_at', models.DateTimeField()),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
            ],
            options={
                'base_manager_name': 'unscoped',
                'indexes': [models.Index(fields=['due_at'], name='unreported_attempt_due')],
                'constraints': [models.UniqueConstraint(fields=('workspace', 'run_id', 'attempt'), name='unreported_attempt_once')],
            },
            managers=[
                ('unscoped', django.db.models.manager.Manager()),
            ],
        ),
    ]
