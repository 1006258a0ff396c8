import json
import re
import shutil

import pytest
from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import call_command

from apps.console.sections import SECTIONS
from apps.web_ui.badges import BADGES, ROLES, RUN_TYPES, UNKNOWN
from tests.required_tools import skip_without

ROOT = settings.BASE_DIR if hasattr(settings, "BASE_DIR") else settings.STATICFILES_DIRS[0].parent
needs_libraries = skip_without(
    "static/vendor is empty: npm run vendor" if finders.find("vendor/htmx.js") is None else None
)


def test_each_used_icon_is_in_the_sprite():
    listed = set(json.loads((ROOT / "config/frontend/icons.json").read_text()))
    used = {badge.icon for badge in [*BADGES.values(), UNKNOWN]} | set(RUN_TYPES.values())
    used |= {icon for icon, _ in ROLES.values()} | {section.icon for section in SECTIONS}
    for template in (ROOT / "templates").rglob("*.html"):
        used |= set(re.findall(r'{% icon "([a-z0-9-]+)"', template.read_text()))
    for script in (ROOT / "static/js").rglob("*.js"):
        text = script.read_text()
        used |= set(re.findall(r'\bcreateIcon\("([a-z0-9-]+)"', text))

    assert used - listed == set()


def test_each_component_style_sheet_begins_with_a_description():
    for sheet in (ROOT / "static/css/components").glob("*.css"):
        assert sheet.read_text().startswith("/*"), sheet.name


def test_components_use_semantic_tokens_and_no_literal_colours():
    literal = re.compile(r"#[0-9a-f]{3,8}\b|rgba?\(|hsla?\(|--(?:light|dark|on-light|on-dark)-\d")
    for sheet in (ROOT / "static/css/components").glob("*.css"):
        assert literal.findall(sheet.read_text()) == [], sheet.name


@needs_libraries
# Changes the folder from which page tests serve static files, so they must not run in parallel.
@pytest.mark.xdist_group("browser")
def test_style_sheet_is_collected_as_one_file_with_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(staticfiles_storage, "location", str(tmp_path))
    monkeypatch.setattr(staticfiles_storage, "base_location", str(tmp_path))
    shutil.rmtree(tmp_path)
    staticfiles_storage.__dict__.pop("manifest_storage", None)

    call_command("collectstatic", interactive=False, verbosity=0)

    manifest = json.loads((tmp_path / "staticfiles.json").read_text())["paths"]
    sheet = (tmp_path / manifest["css/app.css"]).read_text()
    script = (tmp_path / manifest["js/app.js"]).read_text()
    assert "@import" not in sheet
    assert "@layer components {" in sheet
    assert "ibm-plex-sans-latin-wght-normal." in sheet
    assert f'import("./{manifest["js/elements/live-log.js"][3:]}")' in script
