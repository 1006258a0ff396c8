import json

import pytest

from apps.deployments.langgraph_json import ConfigError, parse

FILES = {"agent.py": "file", "": "folder", "lib": "folder", "lib/graph.py": "file"}
LEAST = {"dependencies": ["."], "graphs": {"agent": "./agent.py:graph"}}


def kind(path):
    return FILES.get(path, "nothing")


def project(path="langgraph.json", **changes):
    return parse(json.dumps({**LEAST, **changes}), path=path, kind=kind)


def test_the_least_project():
    found = project()

    assert found.graphs == {"agent": "./agent.py:graph"}
    assert (found.folders, found.packages) == (["."], [])
    assert (found.python_version, found.installer, found.notes) == (None, "uv", [])


def test_packages_and_folders_are_told_apart():
    found = project(dependencies=["./lib", "langchain-openai>=1", "git+https://git.example/x.git"])

    assert found.folders == ["./lib"]
    assert found.packages == ["langchain-openai>=1", "git+https://git.example/x.git"]


def test_paths_are_relative_to_the_file_itself():
    found = project("lib/langgraph.json", dependencies=[".."], graphs={"a": "./graph.py:g"})

    assert (found.folder, found.place(".."), found.place(".")) == ("lib", "", "lib")


def test_a_graph_may_have_a_description():
    found = project(graphs={"a": {"path": "./agent.py:graph", "description": "Answers"}})

    assert (found.graphs, found.descriptions) == ({"a": "./agent.py:graph"}, {"a": "Answers"})


def test_a_pip_configuration_file_asks_for_pip():
    assert project(pip_config_file="agent.py").installer == "pip"


def test_what_has_no_effect_is_said():
    assert project(image_distro="wolfi", env=".env").notes == [
        "`image_distro` has no effect here: no container image is built.",
        "`env` names .env, which is not in the repository: only the deployment has variables.",
    ]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"graphs": {}}, "`graphs` must name at least one graph"),
        ({"graphs": {"a": 1}}, "`graphs`: a must be a text such as `./agent.py:graph`"),
        ({"graphs": {"a": "./agent.py"}}, "it must be `./file.py:name` or `package.module:name`."),
        (
            {"graphs": {"a": "./no.py:g"}},
            "`graphs`: a: there is no file ./no.py in the repository.",
        ),
        ({"graphs": {"a": "../x.py:g"}}, "../x.py is outside the repository."),
        ({"graphs": {"a": "/etc/x.py:g"}}, "/etc/x.py is outside the repository."),
        ({"graphs": {"a": "./a.ts:g"}}, "only Python is supported yet"),
        ({"graphs": {"a": "./agent.py:g()"}}, "`g()` cannot be the name of a Python object."),
        ({"dependencies": []}, "`dependencies` must be a list with at least one entry"),
        ({"dependencies": ["./no"]}, "there is no folder ./no in the repository."),
        (
            {"dependencies": ["-r x"]},
            "'-r x' is neither a local folder (`./folder`) nor a package.",
        ),
        ({"dependencies": ["git+https://t@git.example/x"]}, "user name or token is not taken"),
        ({"python_version": "3.9"}, "the oldest that is supported is 3.11."),
        ({"python_version": 3.12}, '`python_version` must be a text like "3.12", not 3.12.'),
        ({"pip_installer": "poetry"}, "`pip_installer` must be auto, pip or uv."),
        ({"pip_installer": "uv", "pip_config_file": "agent.py"}, "read by pip only"),
        ({"env": 3}, "`env` must be an object of variables or the path of a .env file."),
        ({"auth": {"path": "./a.py:a"}}, "has `auth`, which is not supported yet"),
        ({"http": {"app": "./a.py:a"}}, "has `http`, which is not supported yet"),
        ({"grahps": {}}, "has the key `grahps`, which is not known."),
    ],
)
def test_it_says_what_is_wrong(changes, says):
    with pytest.raises(ConfigError) as caught:
        project(**changes)

    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_what_is_no_object_is_refused(text):
    with pytest.raises(ConfigError, match=r"langgraph\.json"):
        parse(text, path="langgraph.json", kind=kind)
