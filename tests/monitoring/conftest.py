from tests.tracing.conftest import api, make_api, objects, other_workspace, page, workspace

__all__ = ["api", "make_api", "objects", "other_workspace", "page", "workspace"]
