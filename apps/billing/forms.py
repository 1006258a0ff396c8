from __future__ import annotations

from django.forms import ModelForm, Textarea

from apps.billing.models import BillingAccount


class DetailsForm(ModelForm[BillingAccount]):
    """What stands on invoices."""

    class Meta:
        model = BillingAccount
        fields = ("name", "email", "address", "country", "tax_id")
        widgets = {"address": Textarea(attrs={"rows": 3})}

    def clean_country(self) -> str:
        country: str = self.cleaned_data["country"].upper()
        if country and not (len(country) == 2 and country.isascii() and country.isalpha()):
            self.add_error("country", "A country is two letters, such as DE.")
        return country
