"""The variables of an agent's `.env` file."""

from __future__ import annotations

import io
import os

import pytest
from dotenv import dotenv_values

from apps.deployments.build_dirs import RevisionDir
from apps.deployments.env_file import (
    InvalidStatement,
    missing_example_variables,
    parse_env_file,
    read_env_file,
)
from apps.deployments.hosts import host_environment
from tests.agent_runtime.factories import make_revision

FILE = r"""
# a comment
export WORD='from file'
TRAILING=value # a comment
HASH=a#b
LINES="first
second"
ESCAPED="a\nb \"quoted\""
RAW='a\nb'
COMBINED=${WORD}-${HASH}-${ABSENT:-default}
LATER=$WORD
EMPTY=
NAME_ONLY
 SPACED = x y
DOUBLE="it's"
"""
EXPECTED = {
    "WORD": "from file",
    "TRAILING": "value",
    "HASH": "a#b",
    "LINES": "first\nsecond",
    "ESCAPED": 'a\nb "quoted"',
    "RAW": r"a\nb",
    "COMBINED": "from file-a#b-default",
    "LATER": "$WORD",
    "EMPTY": "",
    "SPACED": "x y",
    "DOUBLE": "it's",
}


def test_file_is_read_as_by_the_cli_of_langgraph():
    by_cli = dotenv_values(stream=io.StringIO(FILE))

    assert parse_env_file(FILE, {}) == EXPECTED
    assert {name: value for name, value in by_cli.items() if value is not None} == EXPECTED


def test_reference_never_resolves_to_a_variable_of_the_platform():
    name = next(iter(os.environ))

    variables = parse_env_file(f"OWN=${{{name}}}\nGIVEN=${{REGION}}", {"REGION": "eu"})

    assert variables == {"OWN": "", "GIVEN": "eu"}


@pytest.mark.parametrize("text", ["A=1\nno equals sign", "A=1\n=2", "A=1\nB='open"])
def test_strict_reading_names_the_line_of_an_invalid_statement(text):
    with pytest.raises(InvalidStatement, match="Line 2 is not in the form NAME=value"):
        parse_env_file(text, {}, strict=True)


@pytest.fixture
def directory(settings, tmp_path) -> RevisionDir:
    settings.DATA_DIR = tmp_path
    revision = make_revision()
    directory = RevisionDir.for_attempt(revision.pk, 1, 1)
    (directory.source / "app").mkdir(parents=True)
    (directory.source / "app" / "my.env").write_text("WORD=${PATH}\nPATH=/never\nBAD=\0")
    return directory


@pytest.mark.django_db
def test_file_of_a_host_overrides_no_variable(directory):
    revision = make_revision()
    revision.config_path = "app/langgraph.json"
    revision.config = {"env": "./my.env"}

    variables = host_environment(revision, directory)

    assert variables["PATH"] == variables["WORD"]
    assert variables["PATH"].startswith(f"{directory.venv}/bin:")
    assert "BAD" not in variables


@pytest.mark.django_db
@pytest.mark.parametrize(
    "env", ["absent.env", "../../outside.env", "/etc/passwd", None, {"A": "b"}]
)
def test_file_outside_the_repository_has_no_variables(directory, env):
    assert read_env_file(directory, "app/langgraph.json", {"env": env}, {}) == {}


EXAMPLE = "# keys\nOPENAI_API_KEY=...\nTAVILY_API_KEY=\nLANGSMITH_PROJECT=x\n# OTHER_KEY=\n"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("env", "known", "expected"),
    [
        ("./.env", {}, ("app/.env.example", ["OPENAI_API_KEY", "TAVILY_API_KEY"])),
        (".env", {"OPENAI_API_KEY": "k"}, ("app/.env.example", ["TAVILY_API_KEY"])),
        (".env", {"OPENAI_API_KEY": "k", "TAVILY_API_KEY": "k"}, None),
        ("../.env", {}, None),
        ("../../.env", {}, None),
        ({"A": "b"}, {}, None),
        (None, {}, None),
    ],
)
def test_variables_of_the_example_that_have_no_value_are_found(directory, env, known, expected):
    (directory.source / "app" / ".env.example").write_text(EXAMPLE)

    missing = missing_example_variables(directory, "app/langgraph.json", {"env": env}, known)

    assert missing == expected
