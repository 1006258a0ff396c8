from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("prompts", "0003_copy_deliveries"),
    ]

    operations = [
        migrations.DeleteModel(name="PromptWebhookDelivery"),
    ]
