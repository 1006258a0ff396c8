"""Prompts by the public `langsmith` client against the running platform."""

from __future__ import annotations

import asyncio
import sys
import types
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.prompts.structured import StructuredPrompt
from langchain_core.runnables import RunnableBinding
from langsmith import AsyncClient, Client
from langsmith._client import Langsmith
from langsmith.schemas import FileEntry, SkillEntry
from langsmith.utils import LangSmithConflictError, LangSmithNotFoundError, LangSmithUserError

from tests.live import Live

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore:.*StructuredPrompt.*"),
]
CHAT = ChatPromptTemplate.from_messages(
    [("system", "You speak {language}."), MessagesPlaceholder("history"), ("human", "{question}")]
)


class ChatOpenAI(FakeListChatModel):
    """Takes the place of the class of that name, whose package the tests do not install."""

    model: str = "gpt-4o"
    openai_api_key: str | None = None
    responses: list[str] = ["Bonjour"]

    @classmethod
    def is_lc_serializable(cls) -> bool:
        return True

    @classmethod
    def get_lc_namespace(cls) -> list[str]:
        return ["langchain", "chat_models", "openai"]

    @property
    def lc_secrets(self) -> dict[str, str]:
        return {"openai_api_key": "OPENAI_API_KEY"}


@pytest.fixture
def openai(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `langchain_core.load` find the class where the manifest names it."""
    names = (
        "langchain_openai",
        "langchain_openai.chat_models",
        "langchain_openai.chat_models.base",
    )
    for name in names:
        module: Any = types.ModuleType(name)
        module.ChatOpenAI = ChatOpenAI
        monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture(scope="module")
def client(live: Live) -> Iterator[Client]:
    client = Client(api_url=live.api_url, api_key=live.api_key, disable_prompt_cache=True)
    yield client
    client.cleanup()


@pytest.fixture
def name() -> str:
    return f"sdk-{uuid.uuid4().hex[:12]}"


def test_chat_prompt_is_pushed_and_pulled(client, name):
    url = client.push_prompt(name, object=CHAT, description="Helps.", tags=["a", "b"])

    commit = client.pull_prompt_commit(name)
    pulled = client.pull_prompt(name)
    assert f"/prompts/{name}/{commit.commit_hash[:8]}" in url
    assert pulled.metadata == {
        "lc_hub_owner": "-",
        "lc_hub_repo": name,
        "lc_hub_commit_hash": commit.commit_hash,
    }
    values = {"language": "French", "history": [("ai", "Salut")], "question": "Ça va ?"}
    assert pulled.invoke(values) == CHAT.invoke(values)
    assert pulled.messages == CHAT.messages
    prompt = client.get_prompt(name)
    assert (prompt.description, prompt.tags, prompt.num_commits) == ("Helps.", ["a", "b"], 1)
    assert prompt.last_commit_hash == commit.commit_hash


def test_text_and_structured_prompts_load_unchanged(client, name):
    schema = {"title": "answer", "type": "object", "properties": {"text": {"type": "string"}}}
    structured = StructuredPrompt([("human", "{question}")], schema)
    text = PromptTemplate.from_template("Hello {{name}}", template_format="mustache")

    client.push_prompt(name, object=text)
    assert client.pull_prompt(name).format(name="you") == "Hello you"
    client.push_prompt(name, object=structured)

    pulled = client.pull_prompt(name)
    assert isinstance(pulled, StructuredPrompt)
    assert (pulled.schema_, pulled.messages) == (schema, structured.messages)


def test_bound_model_is_pulled_only_on_request(client, name, openai):
    chain = CHAT | ChatOpenAI(openai_api_key="sk-hunter2")
    client.push_prompt(name, object=chain)

    assert isinstance(client.pull_prompt(name), ChatPromptTemplate)
    pulled = client.pull_prompt(
        name, include_model=True, secrets={"OPENAI_API_KEY": "sk-of-the-caller"}
    )
    answer = pulled.invoke({"language": "French", "history": [], "question": "?"})
    assert answer.content == "Bonjour"
    assert (pulled.last.model, pulled.last.openai_api_key) == ("gpt-4o", "sk-of-the-caller")
    commit = client.pull_prompt_commit(name, include_model=True)
    assert commit.hub_model_provider == "ChatOpenAI"
    assert "hunter2" not in repr(commit.manifest)


def test_structured_prompt_with_a_bound_model_comes_back_as_a_chain(client, name, openai):
    model: RunnableBinding = ChatOpenAI().bind(temperature=0.5)
    client.push_prompt(name, object=CHAT | model)

    pulled = client.pull_prompt(name, include_model=True)

    assert isinstance(pulled.last, RunnableBinding)
    assert (type(pulled.last.bound).__name__, pulled.last.kwargs) == (
        "ChatOpenAI",
        {"temperature": 0.5},
    )


def test_commits_are_listed_pinned_and_tagged(client, name):
    client.push_prompt(name, object=PromptTemplate.from_template("1 {a}"))
    first = client.pull_prompt_commit(name).commit_hash
    url = client.push_prompt(
        name, object=PromptTemplate.from_template("2 {a}"), commit_tags=["production", "v2"],
        commit_description="second",
    )  # fmt: skip
    client.create_commit(name, PromptTemplate.from_template("3 {a}"), tags="production")

    commits = list(client.list_prompt_commits(name))
    assert [row.num_downloads for row in commits] == [0, 0, commits[2].num_downloads]
    assert len(commits) == 3
    assert (commits[1].commit_hash or "")[:8] in url
    assert commits[2].commit_hash == first
    assert client.pull_prompt(f"{name}:{first}").template == "1 {a}"
    assert client.pull_prompt(f"{name}:{first[:8]}").template == "1 {a}"
    assert client.pull_prompt(f"{name}:v2").template == "2 {a}"
    assert client.pull_prompt_commit(f"{name}:v2").description == "second"
    assert client.pull_prompt(f"{name}:production").template == "3 {a}"
    assert len(list(client.list_prompt_commits(name, limit=2))) == 2
    with pytest.raises(LangSmithNotFoundError):
        client.pull_prompt(f"{name}:staging")


def test_conflicts_are_raised(client, name):
    client.push_prompt(name, object=CHAT)
    first = client.pull_prompt_commit(name).commit_hash

    with pytest.raises(LangSmithConflictError, match="Nothing to commit"):
        client.push_prompt(name, object=CHAT)
    client.push_prompt(name, object=PromptTemplate.from_template("2 {a}"))
    with pytest.raises(LangSmithConflictError, match="parent_commit"):
        client.push_prompt(
            name, object=PromptTemplate.from_template("3 {a}"), parent_commit_hash=first
        )
    with pytest.raises(LangSmithConflictError):
        client.create_prompt(name)


def test_prompts_are_listed_liked_changed_and_deleted(client, name):
    client.create_prompt(name, description="An unusual xylograph")

    assert [row.repo_handle for row in client.list_prompts(query=name).repos] == [name]
    assert name in [row.repo_handle for row in client.list_prompts(is_public=False).repos]
    assert client.like_prompt(name) == {"likes": 1}
    assert client.list_prompts(query=name, sort_field="num_likes").repos[0].liked_by_auth_user
    assert client.unlike_prompt(name) == {"likes": 0}
    changed = client.update_prompt(name, description="new", readme="# Read", tags=["t"])
    assert changed["repo"]["readme"] == "# Read"
    client.update_prompt(name, is_archived=True)
    assert client.list_prompts(query=name).total == 0
    assert client.list_prompts(query=name, is_archived=True).total == 1
    client.delete_prompt(name)
    assert client.get_prompt(name) is None
    with pytest.raises(LangSmithNotFoundError):
        client.create_commit(name, CHAT)


def test_public_prompt_needs_a_handle_and_is_pulled_by_owner(live, client, name):
    fresh = Client(api_url=live.api_url, api_key=live.api_key, disable_prompt_cache=True)
    handle = f"h-{uuid.uuid4().hex[:10]}"
    if fresh._get_settings().tenant_handle is None:
        with pytest.raises(LangSmithUserError, match="handle"):
            fresh.create_prompt(name, is_public=True)
    answer = httpx.post(
        f"{live.api_url}/settings/handle", json={"tenant_handle": handle}, headers=live.headers
    )
    assert answer.json()["tenant_handle"] == handle
    owner = Client(api_url=live.api_url, api_key=live.api_key, disable_prompt_cache=True)

    url = owner.push_prompt(f"{handle}/{name}", object=CHAT, is_public=True)

    assert f"/hub/{handle}/{name}:" in url or f"/prompts/{name}/" in url
    identifier = f"{handle}/{name}"
    pulled = owner.pull_prompt(identifier, dangerously_pull_public_prompt=True)
    assert pulled.metadata["lc_hub_owner"] == handle
    assert [row.full_name for row in owner.list_prompts(query=name, is_public=True).repos] == [
        identifier
    ]
    httpx.post(f"{live.api_url}/settings/handle", json={"tenant_handle": ""}, headers=live.headers)
    fresh.cleanup()
    owner.cleanup()


def test_agents_and_skills_are_pushed_and_pulled(client, name):
    skill, agent = f"{name}-skill", f"{name}-agent"
    client.push_skill(skill, files={"SKILL.md": FileEntry(content="# Search")}, tags=["s"])
    files = {"AGENTS.md": FileEntry(content="# Hi"), "search": SkillEntry(repo_handle=skill)}
    url = client.push_agent(agent, files=files, description="Codes")

    pulled = client.pull_agent(agent)
    assert f"/context/{agent}/{pulled.commit_hash[:8]}" in url
    assert pulled.files["AGENTS.md"] == FileEntry(content="# Hi")
    assert pulled.files["search"].commit_hash == client.pull_skill(skill).commit_hash
    client.push_agent(agent, files={"AGENTS.md": None}, parent_commit=pulled.commit_hash)
    assert list(client.pull_agent(agent).files) == ["search"]
    assert "AGENTS.md" in client.pull_agent(f"{agent}:{pulled.commit_hash[:8]}").files
    assert client.agent_exists(agent)
    assert not client.agent_exists(f"{agent}-2")
    assert agent in [row.repo_handle for row in client.list_agents(query=agent).repos]
    assert [row.repo_handle for row in client.list_skills(query=skill).repos] == [skill]
    with pytest.raises(LangSmithConflictError):
        client.push_agent(agent, files={}, parent_commit=pulled.commit_hash)
    client.delete_agent(agent)
    client.delete_skill(skill)
    assert not client.agent_exists(agent)


def test_async_client_pushes_and_pulls(live, name):
    async def run() -> tuple[Any, Any, list[Any], int]:
        client = AsyncClient(api_url=live.api_url, api_key=live.api_key, disable_prompt_cache=True)
        await client.push_prompt(name, object=CHAT, commit_tags="live")
        pulled = await client.pull_prompt(f"{name}:live")
        prompt = await client.get_prompt(name)
        commits = [row async for row in client.list_prompt_commits(name)]
        listed = await client.list_prompts(query=name)
        await client.delete_prompt(name)
        await client.aclose()
        return pulled, prompt, commits, listed.total

    pulled, prompt, commits, total = asyncio.run(run())

    assert pulled.messages == CHAT.messages
    assert prompt.last_commit_hash == commits[0].commit_hash
    assert (len(commits), total) == (1, 1)


def test_generated_client_reads_and_writes(live, client, name):
    generated = Langsmith(api_key=live.api_key, base_url=live.url)
    created = generated.repos.create(repo_handle=name, is_public=False, tags=["g"])
    manifest = {
        "lc": 1, "type": "constructor", "id": ["langchain", "prompts", "prompt", "PromptTemplate"],
        "kwargs": {"input_variables": ["a"], "template": "{a}", "template_format": "f-string"},
    }  # fmt: skip

    commit = generated.commits.create(name, owner="-", manifest=manifest).commit

    assert created.repo.repo_handle == name
    assert generated.repos.retrieve(name, owner="-").repo.last_commit_hash == commit.commit_hash
    pulled = generated.commits.retrieve("latest", owner="-", repo=name, include="model,is_draft")
    assert (pulled.manifest, pulled.is_draft) == (manifest, False)
    assert [row.id for row in generated.commits.list(name, owner="-", limit=1)] == [commit.id]
    listed = list(generated.repos.list(tags=["g"], repo_types=["prompt"], has_commits=True))
    assert name in [row.repo_handle for row in listed]
    assert generated.repos.update(name, owner="-", description="d") is not None
    generated.repos.delete(name, owner="-")
    generated.close()
    assert client.get_prompt(name) is None


def test_prompt_cache_serves_a_pull_and_refreshes(live, name):
    cached = Client(api_url=live.api_url, api_key=live.api_key)
    cached.push_prompt(name, object=PromptTemplate.from_template("1 {a}"))
    assert cached.pull_prompt(name).template == "1 {a}"
    cached.push_prompt(name, object=PromptTemplate.from_template("2 {a}"))

    assert cached.pull_prompt(name).template == "1 {a}"
    assert cached.pull_prompt(name, skip_cache=True).template == "2 {a}"
    cached.cleanup()
