from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("prompts", "0004_copy_deliveries"),
    ]

    operations = [
        migrations.DeleteModel(name="PromptWebhookDelivery"),
    ]
