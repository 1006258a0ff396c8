import json
import re
from pathlib import Path

import pytest

from apps.deployments.langgraph_json import ConfigError, keys, parse, sections, server_config

FILES = {
    "": "folder",
    "agent.py": "file",
    "uv.lock": "file",
    "lib": "folder",
    "lib/graph.py": "file",
    "lib/needs.txt": "file",
    "app/pyproject.toml": "file",
    "lib/linked.txt": "link",
    "linked-folder": "link",
}
MINIMAL_CONFIG = {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}


def file_type(path):
    return FILES.get(path, "missing")


def parse_config(path="langgraph.json", **changes):
    return parse(json.dumps({**MINIMAL_CONFIG, **changes}), path=path, file_type=file_type)


def test_minimal_project_is_parsed():
    config = parse_config()

    assert config.graphs == {"agent": "./agent.py:graph"}
    assert (config.folders, config.packages) == (["."], [])
    assert (config.python_version, config.installer, config.warnings) == (None, "uv", [])


def test_dependencies_are_split_into_packages_and_folders():
    config = parse_config(
        dependencies=["./lib", "langchain-openai>=1", "git+https://git.example/x.git"]
    )

    assert config.folders == ["./lib"]
    assert config.packages == ["langchain-openai>=1", "git+https://git.example/x.git"]


@pytest.mark.parametrize(
    ("entry", "folders", "files"),
    [
        ("./lib/needs.txt", [], ["./lib/needs.txt"]),
        ("lib/needs.txt", [], ["lib/needs.txt"]),
        ("./lib/linked.txt", [], ["./lib/linked.txt"]),
        ("app/pyproject.toml", ["app"], []),
        ("./linked-folder", ["./linked-folder"], []),
    ],
)
def test_files_of_a_project_stand_for_what_they_install(entry, folders, files):
    config = parse_config(dependencies=[entry])

    assert (config.folders, config.requirement_files, config.packages) == (folders, files, [])


def test_variables_may_be_listed_by_name():
    assert parse_config(env=["API_KEY", "MODEL"]).warnings == [
        "`env` lists names; the deployment's variables give their values: API_KEY, MODEL."
    ]


def test_paths_are_relative_to_the_file_itself():
    config = parse_config("lib/langgraph.json", dependencies=[".."], graphs={"a": "./graph.py:g"})

    assert (config.folder, config.resolve(".."), config.resolve(".")) == ("lib", "", "lib")


def test_a_graph_may_have_a_description():
    config = parse_config(graphs={"a": {"path": "./agent.py:graph", "description": "Answers"}})

    assert (config.graphs, config.descriptions) == ({"a": "./agent.py:graph"}, {"a": "Answers"})


def test_graphs_may_be_prompts_and_resources():
    graphs = {"a": "./agent.py:graph", "b": "./agent.py:graph"}
    config = parse_config(
        graphs=graphs, mcp={"prompts": ["a"], "resources": {"docs://{page}": "b"}}
    )

    assert config.sections.mcp.prompts == ["a"]
    assert config.sections.mcp.resources == {"docs://{page}": "b"}


def test_pip_config_file_selects_pip():
    assert parse_config(pip_config_file="agent.py").installer == "pip"


def test_ignored_keys_and_missing_env_file_give_warnings():
    assert parse_config(image_distro="wolfi", env=".env").warnings == [
        "`image_distro` has no effect here: no container image is built.",
        "`env` is .env, which is not in the repository and therefore ignored.",
    ]


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        ({"dockerfile_lines": ["RUN apt-get install -y curl"]}, "`dockerfile_lines` has no effect"),
        ({"base_image": "example/image:1"}, "`base_image` has no effect here: agents run in"),
        ({"ui": {"card": "./card.tsx"}}, "`ui` has no effect here: components of generative UI"),
        ({"checkpointer": {"path": "./agent.py:s"}}, "`checkpointer.path` has no effect here: the"),
        ({"name": "Agents", "version": "1.0"}, "`name` is not a key of langgraph.json and has no"),
    ],
)
def test_keys_without_an_effect_give_a_warning(changes, warning):
    config = parse_config(**changes)

    assert config.warnings[0].startswith(warning)
    assert len(config.warnings) == len(changes)


@pytest.mark.parametrize("empty", [[], {}, "", None])
def test_an_empty_key_without_an_effect_gives_no_warning(empty):
    assert parse_config(dockerfile_lines=empty, ui=empty).warnings == []


@pytest.mark.parametrize(
    ("changes", "message"),
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
        ({"graphs": {"a": "./a.ts:g"}, "ui": {"b": "c"}}, "only Python is supported."),
        ({"auth": {"path": "./a.ts:g"}}, "only Python is supported."),
        ({"dependencies": [".", "requirements.txt"]}, "there is no file requirements.txt in the"),
        ({"dependencies": ["./no/requirements.txt"]}, "there is no file ./no/requirements.txt in"),
        ({"dependencies": ["./uv.lock"]}, "./uv.lock is a file; name its folder"),
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
        ({"env": ["A", 1]}, "`env` must be an object of variables"),
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
            {"http": {"cors": {"allow_origin_regex": "["}}},
            "is not an RE2 regular expression",
        ),
        ({"http": {"cors": {"allow_origin_regex": "(?=a)"}}}, "invalid perl operator: (?="),
        (
            {"http": {"cors": {"allow_origin_regex": "((a{99}){99}){99}"}}},
            "invalid repetition size",
        ),
        ({"http": {"cors": {"allow_origin_regex": "a" * 501}}}, "longer than 500 characters"),
        ({"mcp": {"prompts": ["b"]}}, "`mcp`: b is not one of `graphs`."),
        ({"mcp": {"resources": {"docs://a": "b"}}}, "`mcp`: b is not one of `graphs`."),
        (
            {"mcp": {"prompts": ["agent"], "resources": {"docs://a": "agent"}}},
            "`mcp`: the graph agent is either a prompt or a resource.",
        ),
        ({"mcp": {"resources": {"thread:///a": "agent"}}}, "thread: is a scheme of the platform."),
        ({"mcp": {"tools": []}}, "`mcp.tools` is an unknown key."),
        ({"store": {"index": {"dims": 3}}}, "`store.index.embed`: Field required."),
        ({"store": {"index": {"dims": "3", "embed": "x:y"}}}, "`store.index.dims`: Input should"),
        ({"store": {"index": {"dims": 3, "embed": "./no.py:e"}}}, "there is no file ./no.py"),
        ({"store": {"ttl": {"default_ttl": 0}}}, "`store.ttl.default_ttl`: Input should be gr"),
        ({"checkpointer": {"ttl": {"strategy": "keep"}}}, "`checkpointer.ttl.strategy`: Input"),
        (
            {"webhooks": {"headers": {"X": "${{ env.SECRET }}"}}},
            "`webhooks`: the header X may only use ${{ env.NAME }} with names that start with",
        ),
        ({"encryption": {"path": "./a.py:a"}}, "has `encryption`, which is not supported"),
        ({"source": {"kind": "git"}}, "`source` must be an object with `kind`: uv."),
        ({"source": {"kind": "uv", "root": "lib"}}, "`source`: there is no pyproject.toml in lib."),
        ({"grahps": {}}, "has the unknown key `grahps`. Did you mean `graphs`?"),
        ({"auht": {"path": "./agent.py:a"}}, "Did you mean `auth`?"),
        ({"authentication": {"path": "./agent.py:a"}}, "Did you mean `auth`?"),
        ({"Encryption": {}}, "Did you mean `encryption`?"),
        ({f"x-{number}": 1 for number in range(21)}, "has 21 unknown keys; at most 20 may be."),
    ],
)
def test_invalid_configuration_is_rejected_with_a_message(changes, message):
    with pytest.raises(ConfigError) as caught:
        parse_config(**changes)

    assert message in str(caught.value)


def test_sections_are_typed_and_have_their_defaults():
    config_sections = parse_config(
        http={"cors": {"allow_origins": ["https://a.example"]}, "disable_mcp": True},
        auth={"path": "./agent.py:auth", "cache": {"cache_keys": ["authorization"]}},
        store={"index": {"dims": 3, "embed": "./agent.py:embed"}, "ttl": {"default_ttl": 60}},
        checkpointer={"ttl": {"strategy": "keep_latest", "default_ttl": 43200}},
        webhooks={"headers": {"X-Token": "Bearer ${{ env.LG_WEBHOOK_TOKEN }}"}},
    ).sections

    assert (config_sections.http.disable_mcp, config_sections.http.disable_store) == (True, False)
    assert config_sections.http.cors.allow_methods == ["GET"]
    assert (config_sections.auth.disable_studio_auth, config_sections.auth.cache.ttl_seconds) == (
        False,
        60,
    )
    assert (config_sections.store.index.fields, config_sections.store.ttl.refresh_on_read) == (
        ["$"],
        True,
    )
    assert config_sections.checkpointer.ttl.sweep_interval_minutes == 5
    assert config_sections.webhooks.url.disable_loopback is True


@pytest.mark.parametrize(
    "http_section",
    [
        {"configurable_headers": {"includes": ["x-*"], "excludes": ["x-no"]}},
        {"configurable-headers": {"include": ["x-*"], "exclude": ["x-no"]}},
    ],
)
def test_header_rules_have_two_spellings(http_section):
    rules = parse_config(http=http_section).sections.http.configurable_headers

    assert (rules.includes, rules.excludes) == (["x-*"], ["x-no"])


@pytest.mark.parametrize(
    "pattern", [r"https://.*\.example\.com", r"https?://[a-z0-9-]+\.(a|b)\.example(:\d+)?"]
)
def test_common_origin_patterns_are_accepted(pattern):
    cors = parse_config(http={"cors": {"allow_origin_regex": pattern}}).sections.http.cors

    assert cors.allow_origin_regex == pattern


@pytest.mark.parametrize(
    ("variables", "field", "value"),
    [
        ({"BG_JOB_TIMEOUT_SECS": "30"}, "run_seconds", 30.0),
        ({"BG_JOB_ISOLATED_LOOPS": "true"}, "isolated_loops", True),
        ({"LOG_LEVEL": "debug"}, "log_level", "DEBUG"),
        ({"MOUNT_PREFIX": "/me"}, "mount_prefix", "/me"),
        ({"MOUNT_PREFIX": ""}, "mount_prefix", None),
    ],
)
def test_server_variables_are_parsed(variables, field, value):
    assert getattr(server_config.read_server_config(variables), field) == value


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"BG_JOB_TIMEOUT_SECS": "soon"}, "The variable BG_JOB_TIMEOUT_SECS is 'soon'"),
        ({"BG_JOB_ISOLATED_LOOPS": "some"}, "The variable BG_JOB_ISOLATED_LOOPS is 'some'"),
        ({"LOG_LEVEL": "loud"}, "The variable LOG_LEVEL is 'loud'"),
        ({"MOUNT_PREFIX": "me"}, "The variable MOUNT_PREFIX is 'me'"),
    ],
)
def test_invalid_server_variable_is_named_in_the_error(variables, message):
    with pytest.raises(ConfigError) as caught:
        server_config.read_server_config(variables)

    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_text_that_is_not_a_json_object_is_rejected(text):
    with pytest.raises(ConfigError, match=r"langgraph\.json"):
        parse(text, path="langgraph.json", file_type=file_type)


def read_documented_keys():
    """Return the support of each key in docs/langgraph-json.md: supported, ignored or rejected."""
    page = (Path(__file__).parents[2] / "docs/langgraph-json.md").read_text()
    return dict(
        re.findall(r"^\| `([\w.$]+)` \| (supported|ignored|rejected) \|", page, re.MULTILINE)
    )


def test_documentation_lists_each_key_with_its_support():
    table = read_documented_keys()
    sections_ = {"auth", "checkpointer", "http", "mcp", "store"}
    expected = {
        **dict.fromkeys(keys.SUPPORTED - sections_, "supported"),
        **dict.fromkeys(keys.IGNORED, "ignored"),
        **dict.fromkeys(keys.UNSUPPORTED, "rejected"),
    }

    assert {key: table.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("http", sections.Http),
        ("auth", sections.Auth),
        ("store", sections.Store),
        ("checkpointer", sections.Checkpointer),
        ("mcp", sections.Mcp),
    ],
)
def test_documentation_lists_each_field_of_the_sections(section, model):
    fields = {f"{section}.{name}" for name in model.model_fields}
    others = ("threads", "runs", "store", "mcp", "a2a", "meta", "ui")
    combined_fields = {f"http.disable_{name}" for name in others}

    assert fields - read_documented_keys().keys() == (
        combined_fields if section == "http" else set()
    )
