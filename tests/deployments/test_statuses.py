from apps.deployments.statuses import FINAL, IN_PROGRESS, PENDING, TRANSITIONS, RevisionStatus


def test_transitions_cover_every_status():
    assert set(TRANSITIONS) == set(RevisionStatus)


def test_every_unfinished_status_can_become_final():
    assert [s for s in RevisionStatus if s not in FINAL and not TRANSITIONS[s] & FINAL] == []


def test_each_status_is_pending_in_progress_or_final():
    assert sorted(PENDING | IN_PROGRESS | FINAL) == sorted(RevisionStatus)
    assert len(PENDING) + len(IN_PROGRESS) + len(FINAL) == len(RevisionStatus)


def test_only_built_final_statuses_can_be_redeployed():
    redeployable = {s for s in FINAL if RevisionStatus.AWAITING_DEPLOY in TRANSITIONS[s]}

    assert redeployable == {"DEPLOYED", "DEPLOY_FAILED", "INTERRUPTED"}
