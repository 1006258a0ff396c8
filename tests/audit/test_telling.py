"""How entries of the audit log read."""

from apps.audit.models import Entry
from apps.audit.presentation import action_label, present


def test_a_deed_is_said_in_words():
    assert action_label("user.second_factor_added") == "User second factor added"


def test_each_field_that_differs_is_told_before_and_after():
    entry = Entry(
        action="role.updated",
        before={"display_name": "Old", "permissions": ["runs:read"], "is_open": False},
        after={"display_name": "New", "permissions": ["runs:read", "tags:read"], "note": None},
    )

    row = present(entry)

    assert row.action == "Role updated"
    assert row.fields == "display name, permissions, is open, note"
    assert row.differences == [
        ("display name", "Old", "New"),
        ("permissions", "runs:read", "runs:read, tags:read"),
        ("is open", "no", ""),
        ("note", "", ""),
    ]


def test_what_came_or_went_has_one_side():
    assert present(Entry(action="key.created", after={"name": "CI"})).differences == [
        ("name", "", "CI")
    ]
    assert present(Entry(action="key.revoked")).differences == []
