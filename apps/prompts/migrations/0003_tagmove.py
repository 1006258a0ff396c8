import apps.core.ids
import django.db.models.deletion
import django.db.models.manager
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('organizations', '0002_owner_required_trigger'),
        ('prompts', '0002_webhooks'),
    ]

    operations = [
        migrations.CreateModel(
            name='TagMove',
            fields=[
                ('id', models.UUIDField(default=apps.core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('tag_name', models.CharField(max_length=100)),
                ('moved_by_id', models.UUIDField(null=True)),
                ('from_commit', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='prompts.commit')),
                ('repository', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='tag_moves', to='prompts.repository')),
                ('to_commit', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='prompts.commit')),
                ('workspace', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='organizations.workspace')),
            ],
            options={
                'base_manager_name': 'unscoped',
                'indexes': [models.Index(fields=['workspace', 'repository', 'tag_name', '-created_at', '-id'], name='tag_move_of_tag'), models.Index(fields=['workspace', 'repository', '-created_at', '-id'], name='tag_move_newest')],
            },
            managers=[
                ('unscoped', django.db.models.manager.Manager()),
            ],
        ),
    ]
