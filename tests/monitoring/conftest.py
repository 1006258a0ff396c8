from tests.tracing.conftest import api, make_api, objects, other_workspace, page

__all__ = ["api", "make_api", "objects", "other_workspace", "page"]
