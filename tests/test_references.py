"""Stale names that tests give as text are found; `make check` looks for them in all tests."""

from __future__ import annotations

import pytest

from tests.references import SourceTree

MODULE = """
import socket
from apps.shop.models import Order as Purchase
MAX_ITEMS = 5
if MAX_ITEMS:
    total = 1
class Basket:
    size = 1
    def add(self): self.items = []
class Bag(Basket):
    pass
"""


@pytest.fixture
def tree(tmp_path):
    folder = tmp_path / "apps/shop"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "baskets.py").write_text(MODULE)
    (folder / "models.py").write_text("class Order:\n    number = 1\n")
    return SourceTree(tmp_path)


def find_stale(tree, source):
    return [
        (reference.line, reference.name)
        for reference in tree.find_stale("tests/test_shop.py", source)
    ]


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("baskets.MIN_ITEMS", "apps.shop.baskets.MIN_ITEMS"),
        ('monkeypatch.setattr(baskets, "MIN_ITEMS", 2)', "apps.shop.baskets.MIN_ITEMS"),
        ('monkeypatch.setattr(baskets.Basket, "drop", 2)', "apps.shop.baskets.Basket.drop"),
        ('monkeypatch.setattr(baskets.Bag, "drop", 2)', "apps.shop.baskets.Bag.drop"),
        ('monkeypatch.setattr("apps.shop.baskets.MIN_ITEMS", 2)', "apps.shop.baskets.MIN_ITEMS"),
        ('patch.object(baskets, "MIN_ITEMS")', "apps.shop.baskets.MIN_ITEMS"),
        ("from apps.shop import tills", "apps.shop.tills"),
        ("import apps.tills", "apps.tills"),
        ("baskets.Purchase.colour", "apps.shop.baskets.Purchase.colour"),
    ],
)
def test_stale_name_is_found(tree, statement, name):
    assert (2, name) in find_stale(tree, f"from apps.shop import baskets\n{statement}\n")


@pytest.mark.parametrize(
    "statement",
    [
        "baskets.MAX_ITEMS",
        "baskets.total",
        "baskets.Bag().add()",
        'monkeypatch.setattr(baskets, "MAX_ITEMS", 2)',
        'monkeypatch.setattr(baskets.Bag, "items", [])',
        'monkeypatch.setattr(baskets.socket, "getaddrinfo", look_up)',
        'patch("apps.shop.baskets.Basket.add")',
        "baskets.Purchase.number",
        "from apps.shop.baskets import Purchase",
    ],
)
def test_existing_name_is_accepted(tree, statement):
    assert find_stale(tree, f"from apps.shop import baskets\n{statement}\n") == []


def test_script_in_a_string_is_checked(tree):
    source = 'SCRIPT = """\nfrom apps.shop import baskets\nbaskets.MIN_ITEMS\n"""\n'

    assert find_stale(tree, source) == [(3, "apps.shop.baskets.MIN_ITEMS")]


def test_script_in_an_f_string_is_checked(tree):
    source = 'script = f"import django; from apps.shop import tills; tills.open({number})"\n'

    assert (1, "apps.shop.tills") in find_stale(tree, source)


def test_variable_with_the_name_of_a_module_is_no_module(tree):
    source = "from apps.shop import baskets\ndef pay(baskets):\n    baskets.anything\n"

    assert find_stale(tree, source) == []
