"""Addresses of resources, with variables."""

from __future__ import annotations

import pytest

from apps.deployments.langgraph_json import uri_template


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("docs://all", "docs://all", {}),
        ("docs://all", "docs://all/", None),
        ("docs://a.b", "docs://axb", None),
        ("docs://{page}/text", "docs://a%20b/text", {"page": "a b"}),
        ("docs://{page}/text", "docs://a/b/text", None),
        ("docs://{page}/text", "docs:///text", None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1-2", "b": "3"}),
        ("urn:page:{id}", "urn:page:7", {"id": "7"}),
    ],
)
def test_a_template_matches_its_addresses(template, uri, values):
    assert uri_template.parse(template).match(uri) == values


@pytest.mark.parametrize(
    "template",
    [
        *("", "all", "/all", "docs:", "1x://a", "x://a b", "thread:///a", "attachment:///{a}"),
        *("x://{a}{b}", "x://{a}/{a}", "x://{a", "x://a}", "x://{}", "x://{+a}", "x://{a,b}"),
        "x://" + "a" * 500,
    ],
)
def test_other_templates_are_refused(template):
    with pytest.raises(ValueError, match=r"must|may|is a scheme"):
        uri_template.parse(template)
