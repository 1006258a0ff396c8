"""A revoked key is dead everywhere within a second: platform API and Agent Servers alike."""

from tests.api_keys.revocation import measure


def test_no_connection_is_let_in_a_second_after_the_revocation(live):
    watched = measure(live.url, live.api_key, connections=6)

    assert [one.path for one in watched if not one.is_refused] == []
    assert max(one.last_good for one in watched) < 1.0
