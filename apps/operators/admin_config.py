from django.contrib.admin.apps import AdminConfig


class OperatorsAdminConfig(AdminConfig):
    """Django's admin with our own site in the place of the usual one."""

    default_site = "apps.operators.site.OperatorsSite"
