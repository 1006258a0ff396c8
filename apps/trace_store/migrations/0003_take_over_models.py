"""The state of four models of `tracing`, whose migration 0002 has renamed their tables."""

import apps.core.ids
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models

MODELS = [
    migrations.CreateModel(
        name='ModelPrice',
        fields=[
            ('id', models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
            ('created_at', models.DateTimeField(auto_now_add=True)),
            ('name', models.CharField(max_length=500)),
            ('match_pattern', models.CharField(max_length=1000)),
            ('match_path', models.JSONField(default=list)),
            ('provider', models.CharField(blank=True, max_length=200, null=True)),
            ('start_time', models.DateTimeField(blank=True, null=True)),
            ('prompt_cost', models.DecimalField(decimal_places=24, max_digits=40)),
            ('completion_cost', models.DecimalField(decimal_places=24, max_digits=40)),
            ('prompt_cost_details', models.JSONField(blank=True, default=dict)),
            ('completion_cost_details', models.JSONField(blank=True, default=dict)),
            ('updated_at', models.DateTimeField(auto_now=True)),
            ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
        ],
        options={
            'base_manager_name': 'unscoped',
            'indexes': [models.Index(fields=['workspace', '-id'], name='model_price_newest')],
        },
        managers=[
            ('unscoped', django.db.models.manager.Manager()),
        ],
    ),
    migrations.CreateModel(
        name='PendingFileDeletion',
        fields=[
            ('created_at', models.DateTimeField(auto_now_add=True)),
            ('id', models.BigAutoField(primary_key=True, serialize=False)),
            ('run_id', models.UUIDField()),
            ('path', models.TextField()),
            ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
        ],
        options={
            'base_manager_name': 'unscoped',
            'indexes': [models.Index(fields=['workspace', 'run_id'], name='pending_file_of_run')],
        },
        managers=[
            ('unscoped', django.db.models.manager.Manager()),
        ],
    ),
    migrations.CreateModel(
        name='RetainedTrace',
        fields=[
            ('id', models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
            ('created_at', models.DateTimeField(auto_now_add=True)),
            ('trace_id', models.UUIDField()),
            ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
        ],
        options={
            'base_manager_name': 'unscoped',
            'constraints': [models.UniqueConstraint(fields=('workspace', 'trace_id'), name='retained_trace_once')],
        },
        managers=[
            ('unscoped', django.db.models.manager.Manager()),
        ],
    ),
    migrations.CreateModel(
        name='RunCount',
        fields=[
            ('created_at', models.DateTimeField(auto_now_add=True)),
            ('id', models.BigAutoField(primary_key=True, serialize=False)),
            ('project_id', models.UUIDField()),
            ('hour', models.DateTimeField()),
            ('runs', models.BigIntegerField(default=0)),
            ('traces', models.BigIntegerField(default=0)),
            ('merged', models.BigIntegerField(default=0)),
            ('removed_runs', models.BigIntegerField(db_default=0, default=0)),
            ('removed_traces', models.BigIntegerField(db_default=0, default=0)),
            ('last_start_time', models.DateTimeField(null=True)),
            ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
        ],
        options={
            'base_manager_name': 'unscoped',
            'indexes': [models.Index(fields=['workspace', 'project_id', 'hour'], name='run_count_of_project'), models.Index(fields=['hour'], name='run_count_by_hour')],
        },
        managers=[
            ('unscoped', django.db.models.manager.Manager()),
        ],
    ),
]


class Migration(migrations.Migration):
    dependencies = [
        ("organizations", "0002_owner_required_trigger"),
        ("trace_store", "0002_rollup_tables"),
        ("tracing", "0002_move_models_to_trace_store"),
    ]

    operations = [migrations.SeparateDatabaseAndState(state_operations=MODELS)]
