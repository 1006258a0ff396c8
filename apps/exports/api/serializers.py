"""Bodies of exports and their destinations."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from apps.exports.models import Compression, Kind, Status
from apps.exports.parquet import FIELDS
from apps.exports.services import MOST_DAYS
from apps.trace_store import filters

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PLAIN = re.compile(r"[^\x00-\x1f\x7f]*")


class ConfigSerializer(serializers.Serializer[Any]):
    bucket_name = serializers.CharField(required=False, allow_null=True, max_length=63)
    prefix = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, max_length=500
    )
    region = serializers.CharField(required=False, allow_blank=True, allow_null=True, max_length=50)
    endpoint_url = serializers.CharField(
        required=False, allow_blank=True, allow_null=True, max_length=500
    )
    include_bucket_in_prefix = serializers.BooleanField(required=False, allow_null=True)

    def validate_bucket_name(self, value: str | None) -> str | None:
        if value is not None and not _BUCKET.fullmatch(value):
            raise serializers.ValidationError("This is not the name of a bucket.")
        return value

    def validate_prefix(self, value: str | None) -> str | None:
        text = value or ""
        if not _PLAIN.fullmatch(text) or ".." in text.split("/"):
            raise serializers.ValidationError("This is not a prefix of keys.")
        return value

    def validate_endpoint_url(self, value: str | None) -> str | None:
        try:
            parts = urlsplit(value or "")
            is_good = not value or (parts.scheme in {"http", "https"} and bool(parts.hostname))
        except ValueError:
            is_good = False
        if not is_good:
            raise serializers.ValidationError("An address that begins with http:// or https://.")
        return value


class CredentialsSerializer(serializers.Serializer[Any]):
    access_key_id = serializers.CharField(max_length=500)
    secret_access_key = serializers.CharField(max_length=1000, trim_whitespace=False)
    session_token = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=5000
    )


class DestinationSerializer(serializers.Serializer[Any]):
    destination_type = serializers.ChoiceField(choices=Kind.values, default=Kind.S3)
    display_name = serializers.CharField(max_length=200)
    config = ConfigSerializer(required=False, default=dict)
    credentials = CredentialsSerializer(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["destination_type"] == Kind.S3:
            if not attrs["config"].get("bucket_name"):
                raise serializers.ValidationError({"config": "`bucket_name` is missing."})
            if not attrs.get("credentials"):
                # Without any, boto would look for the operator's own.
                raise serializers.ValidationError({"credentials": "They are missing."})
        return attrs


class ChangeDestinationSerializer(serializers.Serializer[Any]):
    display_name = serializers.CharField(max_length=200, required=False, allow_null=True)
    credentials = CredentialsSerializer(required=False, allow_null=True)


class ExportSerializer(serializers.Serializer[Any]):
    bulk_export_destination_id = serializers.UUIDField()
    session_id = serializers.UUIDField()
    start_time = serializers.DateTimeField()
    end_time = serializers.DateTimeField(required=False, allow_null=True)
    interval_hours = serializers.IntegerField(
        required=False, allow_null=True, min_value=1, max_value=168
    )
    filter = serializers.CharField(required=False, allow_null=True, allow_blank=True)
    export_fields = serializers.ListField(
        child=serializers.ChoiceField(choices=FIELDS), required=False, allow_null=True
    )
    compression = serializers.ChoiceField(
        choices=Compression.values, required=False, default=Compression.ZSTANDARD
    )
    format = serializers.ChoiceField(choices=["Parquet"], required=False, default="Parquet")
    format_version = serializers.ChoiceField(
        choices=["v1", "v2_beta"], required=False, default="v1"
    )

    def validate_filter(self, value: str | None) -> str:
        if value:
            filters.parse(value)
        return value or ""

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        begin, end = attrs["start_time"], attrs.get("end_time")
        if (end is None) == (attrs.get("interval_hours") is None):
            raise serializers.ValidationError(
                "Give `end_time` for one export, or `interval_hours` for one after each interval."
            )
        if end is not None and end <= begin:
            raise serializers.ValidationError("`end_time` is not after `start_time`.")
        if end is not None and (end - begin).days > MOST_DAYS:
            raise serializers.ValidationError(f"An export may span {MOST_DAYS} days.")
        return attrs


class ChangeExportSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=[Status.CANCELLED])
