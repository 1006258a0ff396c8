"""Serializers of exports and destinations."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from rest_framework import serializers

from apps.exports.models import Compression, DestinationKind, ExportStatus
from apps.exports.parquet import FIELDS
from apps.exports.services import MAX_DAYS
from apps.trace_store import filters

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PRINTABLE = re.compile(r"[^\x00-\x1f\x7f]*")


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
            raise serializers.ValidationError("Must be a valid S3 bucket name.")
        return value

    def validate_prefix(self, value: str | None) -> str | None:
        text = value or ""
        if not _PRINTABLE.fullmatch(text) or ".." in text.split("/"):
            raise serializers.ValidationError("Must be printable text without `..` segments.")
        return value

    def validate_endpoint_url(self, value: str | None) -> str | None:
        try:
            parts = urlsplit(value or "")
            is_valid_url = not value or (parts.scheme in {"http", "https"} and bool(parts.hostname))
        except ValueError:
            is_valid_url = False
        if not is_valid_url:
            raise serializers.ValidationError("Must be a URL with the scheme http or https.")
        return value


class CredentialsSerializer(serializers.Serializer[Any]):
    access_key_id = serializers.CharField(max_length=500)
    secret_access_key = serializers.CharField(max_length=1000, trim_whitespace=False)
    session_token = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=5000
    )


class DestinationSerializer(serializers.Serializer[Any]):
    destination_type = serializers.ChoiceField(
        choices=DestinationKind.values, default=DestinationKind.S3
    )
    display_name = serializers.CharField(max_length=200)
    config = ConfigSerializer(required=False, default=dict)
    credentials = CredentialsSerializer(required=False, allow_null=True)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["destination_type"] == DestinationKind.S3:
            if not attrs["config"].get("bucket_name"):
                raise serializers.ValidationError({"config": "`bucket_name` is required."})
            if not attrs.get("credentials"):
                # Without them, boto would use the credentials of the server.
                raise serializers.ValidationError({"credentials": "Required for an S3 bucket."})
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
                "Set either `end_time` (one export) or `interval_hours` (a schedule)."
            )
        if end is not None and end <= begin:
            raise serializers.ValidationError("`end_time` must be after `start_time`.")
        if end is not None and (end - begin).days > MAX_DAYS:
            raise serializers.ValidationError(f"The time range must not exceed {MAX_DAYS} days.")
        return attrs


class ChangeExportSerializer(serializers.Serializer[Any]):
    status = serializers.ChoiceField(choices=[ExportStatus.CANCELLED])
