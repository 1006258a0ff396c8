"""What the docs must name: every setting, every error code."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import apps
from apps.core.errors import AppError
from config.env import Env

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("name", sorted(Env.model_fields))
def test_each_setting_is_described(name):
    described = set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "settings.md").read_text(), re.M))

    assert name.upper() in described


def test_no_setting_is_described_that_does_not_exist():
    described = set(re.findall(r"^\| `([A-Z_]+)` \|", (DOCS / "settings.md").read_text(), re.M))

    assert described - {name.upper() for name in Env.model_fields} == set()


def test_each_error_code_is_described():
    for module in pkgutil.walk_packages(apps.__path__, "apps."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    codes = {error.code for error in _subclasses(AppError) if error.__module__.startswith("apps.")}
    described = set(re.findall(r"^\| `([a-z_]+)` \|", (DOCS / "errors.md").read_text(), re.M))

    assert codes - described == set()


def _subclasses(cls):
    return {cls}.union(*(_subclasses(child) for child in cls.__subclasses__()))
