"""Whoever brings a token is its bearer; how often each was looked at is counted."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()


@auth.authenticate
async def who(authorization: str | None, path: str, method: str) -> dict:
    if not authorization:
        raise Auth.exceptions.HTTPException(status_code=401, detail="No token.")
    return {"identity": authorization, "asked": f"{method} {path}"}
