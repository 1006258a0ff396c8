"""The docs describe every setting and every error code."""

import importlib
import pkgutil
import re
from pathlib import Path

import apps
from apps.core.errors import AppError
from config.env import Env

DOCS = Path(__file__).parent.parent / "docs"
SETTINGS = {(field.alias or name).upper() for name, field in Env.model_fields.items()}


def test_the_page_of_settings_has_each_setting():
    assert read_first_cells("settings.md") == SETTINGS


def test_each_error_code_is_described():
    for module in pkgutil.walk_packages(apps.__path__, "apps."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    codes = {error.code for error in _subclasses(AppError) if error.__module__.startswith("apps.")}
    described = read_first_cells("errors.md")

    assert codes - described == set()


def read_first_cells(page):
    """Return the first cells of the tables of a page."""
    return set(re.findall(r"^\| `(\w+)` \|", (DOCS / page).read_text(), re.MULTILINE))


def _subclasses(cls):
    return {cls}.union(*(_subclasses(child) for child in cls.__subclasses__()))
