import pytest

from apps.deployments.builds.clone import _absolute_url


@pytest.mark.parametrize(
    ("parent", "url", "expected"),
    [
        ("https://h/a/b.git", "../c.git", "https://h/a/c.git"),
        ("https://h/a/b.git", "../../c/d.git", "https://h/c/d.git"),
        ("git@h:a/b.git", "../c.git", "git@h:a/c.git"),
        ("git@h:b.git", "../c.git", "git@h:c.git"),
        ("ssh://h/a/b", "./c", "ssh://h/a/b/c"),
        ("https://h/a/b.git", "https://other/x", "https://other/x"),
    ],
)
def test_a_submodule_address_is_relative_to_its_parent(parent, url, expected):
    assert _absolute_url(parent, url) == expected
