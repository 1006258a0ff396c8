from django.contrib.admin.apps import AdminConfig


class OperatorsAdminConfig(AdminConfig):
    """Django's admin with `OperatorsSite` as its default site."""

    default_site = "apps.operators.site.OperatorsSite"
