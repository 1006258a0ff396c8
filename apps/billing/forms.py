from __future__ import annotations

from django.forms import ModelForm, Textarea

from apps.billing.models import BillingAccount


class DetailsForm(ModelForm[BillingAccount]):
    """Invoice details."""

    class Meta:
        model = BillingAccount
        fields = ("name", "email", "address", "country", "tax_id")
        labels = {
            "name": "Company or name",
            "email": "Invoice email",
            "address": "Postal address",
            "tax_id": "Tax ID",
        }
        help_texts = {"country": "Two-letter country code."}
        widgets = {"address": Textarea(attrs={"rows": 3})}

    def clean_country(self) -> str:
        country: str = self.cleaned_data["country"].upper()
        if country and not (len(country) == 2 and country.isascii() and country.isalpha()):
            self.add_error("country", "Enter a two-letter country code, such as DE.")
        return country
