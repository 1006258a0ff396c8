from __future__ import annotations

from uuid import UUID, uuid4

from apps.organizations.models import Workspace
from apps.playground.models import Draft, ModelCall, PlaygroundShare, SavedSettings
from tests.factories.organizations import UserFactory


def create_playground_rows(workspace: Workspace, mark: str) -> dict[str, UUID]:
    """Create a row of each table of the playground, each marked with the name.

    Returns a value for each route parameter.
    """
    setting = {"messages": [{"role": "human", "content": mark}]}
    state = {"columns": [{"letter": "A", "setting": setting}]}
    Draft(workspace=workspace, user=UserFactory(), state=state).save()
    share = PlaygroundShare(workspace=workspace, title=mark, state=state)
    share.save()
    settings = SavedSettings(workspace=workspace, name=mark, settings={"a": mark})
    settings.save()
    call = ModelCall(
        workspace=workspace, job_id=uuid4(), step_id=uuid4(), dotted_order=mark, variables={}
    )
    call.save()
    return {"share_id": share.pk, "playground_settings_id": settings.pk}
