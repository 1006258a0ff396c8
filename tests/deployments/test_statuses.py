from apps.deployments.statuses import FINAL, IN_PROGRESS, PENDING, TRANSITIONS, RevisionStatus


def test_every_state_is_in_the_table():
    assert set(TRANSITIONS) == set(RevisionStatus)


def test_every_state_on_the_way_can_end():
    assert [s for s in RevisionStatus if s not in FINAL and not TRANSITIONS[s] & FINAL] == []


def test_a_state_is_waiting_or_in_the_works_or_final():
    assert sorted(PENDING | IN_PROGRESS | FINAL) == sorted(RevisionStatus)
    assert len(PENDING) + len(IN_PROGRESS) + len(FINAL) == len(RevisionStatus)


def test_what_was_never_built_is_never_deployed_again():
    again = {s for s in FINAL if RevisionStatus.AWAITING_DEPLOY in TRANSITIONS[s]}

    assert again == {"DEPLOYED", "DEPLOY_FAILED", "INTERRUPTED"}
