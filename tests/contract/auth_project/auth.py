"""Users named by their token; each sees own rows and the rows shared with them."""

from __future__ import annotations

from langgraph_sdk import Auth

auth = Auth()
TEAMS = {"ann": "red", "bob": "blue", "cleo": "red"}


@auth.authenticate
async def authenticate(authorization: str | None, headers: dict) -> dict:
    name = (authorization or "").removeprefix("Bearer ")
    if name == "crash":
        raise KeyError("a secret of the handler")
    if name not in TEAMS:
        raise Auth.exceptions.HTTPException(status_code=401, detail="Who are you?")
    return {
        "identity": name,
        "permissions": ["threads"],
        "team": TEAMS[name],
        "knows_key": b"x-api-key" in headers,
    }


@auth.on
async def owner_only(ctx: Auth.types.AuthContext, value: dict):
    if isinstance(ctx.user, Auth.types.StudioUser):
        return True
    value.setdefault("metadata", {})["owner"] = ctx.user.identity
    return {"owner": ctx.user.identity}


@auth.on.assistants.read
@auth.on.assistants.search
async def allow_all(ctx: Auth.types.AuthContext, value: dict):
    return True


@auth.on.assistants.delete
async def deny_all(ctx: Auth.types.AuthContext, value: dict):
    return False


@auth.on.threads.update
async def filter_by_owner(ctx: Auth.types.AuthContext, value: dict):
    if (value.get("metadata") or {}).get("raise"):
        raise Auth.exceptions.HTTPException(status_code=418, detail="Not like this.")
    if (value.get("metadata") or {}).get("crash"):
        raise RuntimeError("a secret of the handler")
    if (value.get("metadata") or {}).get("vague"):
        return {"owner": {"$like": "a%"}}
    return {"owner": {"$eq": ctx.user.identity}}


@auth.on.threads.search
async def filter_by_reader(ctx: Auth.types.AuthContext, value: dict):
    if isinstance(ctx.user, Auth.types.StudioUser):
        return None
    return {"readers": {"$contains": ctx.user.identity}}


@auth.on.threads.create
async def add_owner_and_readers(ctx: Auth.types.AuthContext, value: dict):
    metadata = value.setdefault("metadata", {})
    metadata["owner"] = ctx.user.identity
    metadata["readers"] = [ctx.user.identity, *metadata.get("share", [])]
    return {"owner": ctx.user.identity}


@auth.on.store
async def prefix_namespace(ctx: Auth.types.AuthContext, value: dict):
    value["namespace"] = (ctx.user.identity, *(value.get("namespace") or ()))
