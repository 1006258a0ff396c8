"""Presentation of audit entries."""

from apps.audit.models import Entry
from apps.audit.presentation import action_label, present


def test_action_label_is_readable():
    assert action_label("user.second_factor_added") == "User second factor added"


def test_entry_view_lists_each_changed_field():
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


def test_entry_view_of_a_creation_has_no_old_values():
    assert present(Entry(action="key.created", after={"name": "CI"})).differences == [
        ("name", "", "CI")
    ]
    assert present(Entry(action="key.revoked")).differences == []
