import json
import re
from pathlib import Path

import pytest

from apps.deployments.langgraph_json import ConfigError, keys, parse, sections, server_config

FILES = {"agent.py": "file", "": "folder", "lib": "folder", "lib/graph.py": "file"}
LEAST = {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}


def file_type(path):
    return FILES.get(path, "missing")


def project(path="langgraph.json", **changes):
    return parse(json.dumps({**LEAST, **changes}), path=path, file_type=file_type)


def test_minimal_project_is_parsed():
    found = project()

    assert found.graphs == {"agent": "./agent.py:graph"}
    assert (found.folders, found.packages) == (["."], [])
    assert (found.python_version, found.installer, found.warnings) == (None, "uv", [])


def test_dependencies_are_split_into_packages_and_folders():
    found = project(dependencies=["./lib", "langchain-openai>=1", "git+https://git.example/x.git"])

    assert found.folders == ["./lib"]
    assert found.packages == ["langchain-openai>=1", "git+https://git.example/x.git"]


def test_paths_are_relative_to_the_file_itself():
    found = project("lib/langgraph.json", dependencies=[".."], graphs={"a": "./graph.py:g"})

    assert (found.folder, found.resolve(".."), found.resolve(".")) == ("lib", "", "lib")


def test_a_graph_may_have_a_description():
    found = project(graphs={"a": {"path": "./agent.py:graph", "description": "Answers"}})

    assert (found.graphs, found.descriptions) == ({"a": "./agent.py:graph"}, {"a": "Answers"})


def test_pip_config_file_selects_pip():
    assert project(pip_config_file="agent.py").installer == "pip"


def test_ignored_keys_and_missing_env_file_give_warnings():
    assert project(image_distro="wolfi", env=".env").warnings == [
        "`image_distro` has no effect here: no container image is built.",
        "`env` is .env, which is not in the repository and therefore ignored.",
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"graphs": {}}, "`graphs` must name at least one graph"),
        ({"graphs": {"a": 1}}, "`graphs`: a must be a string such as `./agent.py:graph`"),
        ({"graphs": {"a": "./agent.py"}}, "it must be `./file.py:name` or `package.module:name`."),
        (
            {"graphs": {"a": "./no.py:g"}},
            "`graphs`: a: there is no file ./no.py in the repository.",
        ),
        ({"graphs": {"a": "../x.py:g"}}, "../x.py is outside the repository."),
        ({"graphs": {"a": "/etc/x.py:g"}}, "/etc/x.py is outside the repository."),
        ({"graphs": {"a": "./a.ts:g"}}, "only Python is supported."),
        ({"graphs": {"a": "./agent.py:g()"}}, "`g()` is not a valid Python name."),
        ({"dependencies": []}, "`dependencies` must be a list with at least one entry"),
        ({"dependencies": ["./no"]}, "there is no folder ./no in the repository."),
        (
            {"dependencies": ["-r x"]},
            "'-r x' is neither a local folder (`./folder`) nor a package.",
        ),
        ({"dependencies": ["git+https://t@git.example/x"]}, "remove the user name or token"),
        ({"python_version": "3.9"}, "the minimum is 3.11."),
        ({"python_version": 3.12}, '`python_version` must be a string like "3.12", not 3.12.'),
        ({"pip_installer": "poetry"}, "`pip_installer` must be auto, pip or uv."),
        (
            {"pip_installer": "uv", "pip_config_file": "agent.py"},
            "requires `pip_installer` pip or auto",
        ),
        ({"env": 3}, "`env` must be an object of variables or the path of a .env file."),
        ({"auth": {"path": "./a.py:a"}}, "`auth.path`: there is no file ./a.py"),
        ({"auth": {"path": "./agent.py"}}, "`auth.path` is `./agent.py`; it must be"),
        ({"auth": {"disable_studio_auth": True}}, "`auth.path`: Field required."),
        ({"auth": {"path": "./agent.py:a", "pth": 1}}, "`auth.pth` is an unknown key."),
        (
            {"auth": {"path": "./agent.py:a", "cache": {"cache_keys": []}}},
            "`auth.cache.cache_keys`: List should have at least 1 item",
        ),
        ({"http": {"app": "./a.py:a"}}, "`http.app`: there is no file ./a.py"),
        ({"http": {"disable_mcp": "true"}}, "`http.disable_mcp`: Input should be a valid boolean"),
        ({"http": {"mount_prefix": "../x"}}, "`http.mount_prefix`: must be a path such as"),
        ({"http": {"middleware_order": "last"}}, "`http.middleware_order`: Input should be"),
        (
            {"http": {"cors": {"allow_origin_regex": "(a+)+"}}},
            "`http.cors.allow_origin_regex`: may repeat only single characters and classes",
        ),
        (
            {"http": {"cors": {"allow_origin_regex": "a*b*c*"}}},
            "may have at most 2 open-ended repeats",
        ),
        ({"http": {"cors": {"allow_origin_regex": "["}}}, "is not a regular expression"),
        ({"http": {"cors": {"allow_origin_regex": "(?=a)"}}}, "must not have lookarounds"),
        ({"store": {"index": {"dims": 3}}}, "`store.index.embed`: Field required."),
        ({"store": {"index": {"dims": "3", "embed": "x:y"}}}, "`store.index.dims`: Input should"),
        ({"store": {"index": {"dims": 3, "embed": "./no.py:e"}}}, "there is no file ./no.py"),
        ({"store": {"ttl": {"default_ttl": 0}}}, "`store.ttl.default_ttl`: Input should be gr"),
        ({"checkpointer": {"path": "./agent.py:s"}}, "`checkpointer`: `path` is not supported"),
        ({"checkpointer": {"ttl": {"strategy": "keep"}}}, "`checkpointer.ttl.strategy`: Input"),
        (
            {"webhooks": {"headers": {"X": "${{ env.SECRET }}"}}},
            "`webhooks`: the header X may only use ${{ env.NAME }} with names that start with",
        ),
        ({"encryption": {"path": "./a.py:a"}}, "has `encryption`, which is not supported"),
        ({"ui": {"card": "./card.tsx"}}, "has `ui`, which is not supported"),
        ({"dockerfile_lines": ["RUN x"]}, "has `dockerfile_lines`, which is not supported"),
        ({"base_image": "x"}, "has `base_image`, which is not supported"),
        ({"source": {"kind": "git"}}, "`source` must be an object with `kind`: uv."),
        ({"source": {"kind": "uv", "root": "lib"}}, "`source`: there is no pyproject.toml in lib."),
        ({"grahps": {}}, "has the unknown key `grahps`."),
    ],
)
def test_invalid_configuration_is_rejected_with_a_message(changes, says):
    with pytest.raises(ConfigError) as caught:
        project(**changes)

    assert says in str(caught.value)


def test_sections_are_typed_and_have_their_defaults():
    found = project(
        http={"cors": {"allow_origins": ["https://a.example"]}, "disable_mcp": True},
        auth={"path": "./agent.py:auth", "cache": {"cache_keys": ["authorization"]}},
        store={"index": {"dims": 3, "embed": "./agent.py:embed"}, "ttl": {"default_ttl": 60}},
        checkpointer={"ttl": {"strategy": "keep_latest", "default_ttl": 43200}},
        webhooks={"headers": {"X-Token": "Bearer ${{ env.LG_WEBHOOK_TOKEN }}"}},
    ).sections

    assert (found.http.disable_mcp, found.http.disable_store) == (True, False)
    assert found.http.cors.allow_methods == ["GET"]
    assert (found.auth.disable_studio_auth, found.auth.cache.ttl_seconds) == (False, 60)
    assert (found.store.index.fields, found.store.ttl.refresh_on_read) == (["$"], True)
    assert found.checkpointer.ttl.sweep_interval_minutes == 5
    assert found.webhooks.url.disable_loopback is True


@pytest.mark.parametrize(
    "given",
    [
        {"configurable_headers": {"includes": ["x-*"], "excludes": ["x-no"]}},
        {"configurable-headers": {"include": ["x-*"], "exclude": ["x-no"]}},
    ],
)
def test_header_rules_have_two_spellings(given):
    rules = project(http=given).sections.http.configurable_headers

    assert (rules.includes, rules.excludes) == (["x-*"], ["x-no"])


@pytest.mark.parametrize(
    "pattern", [r"https://.*\.example\.com", r"https?://[a-z0-9-]+\.(a|b)\.example(:\d+)?"]
)
def test_common_origin_patterns_are_accepted(pattern):
    cors = project(http={"cors": {"allow_origin_regex": pattern}}).sections.http.cors

    assert cors.allow_origin_regex == pattern


@pytest.mark.parametrize(
    ("given", "fact", "value"),
    [
        ({"BG_JOB_TIMEOUT_SECS": "30"}, "run_seconds", 30.0),
        ({"LOG_LEVEL": "debug"}, "log_level", "DEBUG"),
        ({"MOUNT_PREFIX": "/me"}, "mount_prefix", "/me"),
        ({"MOUNT_PREFIX": ""}, "mount_prefix", None),
    ],
)
def test_server_variables_are_parsed(given, fact, value):
    assert getattr(server_config.read_server_config(given), fact) == value


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"BG_JOB_TIMEOUT_SECS": "soon"}, "The variable BG_JOB_TIMEOUT_SECS is 'soon'"),
        ({"LOG_LEVEL": "loud"}, "The variable LOG_LEVEL is 'loud'"),
        ({"MOUNT_PREFIX": "me"}, "The variable MOUNT_PREFIX is 'me'"),
    ],
)
def test_invalid_server_variable_is_named_in_the_error(given, says):
    with pytest.raises(ConfigError) as caught:
        server_config.read_server_config(given)

    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_text_that_is_not_a_json_object_is_rejected(text):
    with pytest.raises(ConfigError, match=r"langgraph\.json"):
        parse(text, path="langgraph.json", file_type=file_type)


def documented():
    """What docs/langgraph-json.md says of each key: honoured, no effect or refused."""
    page = (Path(__file__).parents[2] / "docs/langgraph-json.md").read_text()
    return dict(
        re.findall(r"^\| `([\w.$]+)` \| (honoured|no effect|refused) \|", page, re.MULTILINE)
    )


def test_documentation_lists_each_key_with_its_support():
    table = documented()
    sections_ = {"auth", "checkpointer", "http", "store"}
    expected = {
        **dict.fromkeys(keys.SUPPORTED - sections_, "honoured"),
        **dict.fromkeys(keys.IGNORED, "no effect"),
        **dict.fromkeys(keys.UNSUPPORTED, "refused"),
    }

    assert {key: table.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("http", sections.Http),
        ("auth", sections.Auth),
        ("store", sections.Store),
        ("checkpointer", sections.Checkpointer),
    ],
)
def test_documentation_lists_each_field_of_the_sections(section, model):
    fields = {f"{section}.{name}" for name in model.model_fields}
    others = ("threads", "runs", "store", "mcp", "a2a", "meta", "ui")
    of_one_row = {f"http.disable_{name}" for name in others}

    assert fields - documented().keys() == (of_one_row if section == "http" else set())
