"""Authentication that accepts every token and uses it as the identity."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def authenticate(authorization: str | None, path: str, method: str) -> dict:
    if not authorization:
        raise Auth.exceptions.HTTPException(status_code=401, detail="No token.")
    return {"identity": authorization, "authenticated_for": f"{method} {path}"}
