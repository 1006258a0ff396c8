"""What a project's embedding function is asked, and what it may answer."""

from __future__ import annotations

import json
import struct

import pytest
from langchain_core.embeddings import Embeddings

from apps.graph_host.embeddings import TextEmbedder
from apps.graph_host.project import Project, ProjectError


def lengths(texts):
    return [[float(len(text)), 0.0] for text in texts]


async def lengths_later(texts):
    return lengths(texts)


def floats(packed):
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


@pytest.mark.parametrize("function", [lengths, lengths_later])
async def test_functions_of_both_kinds_answer_both_kinds_of_callers(function):
    embedder = TextEmbedder(function, 2)

    assert [floats(one) for one in await embedder.aembed(["a", "bcd"])] == [[1, 0], [3, 0]]
    assert floats(await embedder.aembed_query("ab")) == [2, 0]
    # On the loop's own thread, where nobody can wait for a coroutine of this loop.
    assert [floats(one) for one in embedder.embed(["a"])] == [[1, 0]]
    assert floats(embedder.embed_query("ab")) == [2, 0]


async def test_nothing_is_asked_for_no_texts():
    embedder = TextEmbedder(lambda _: pytest.fail("asked"), 2)

    assert await embedder.aembed([]) == []
    assert embedder.embed([]) == []


class Model(Embeddings):
    def embed_documents(self, texts):
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text):
        return [0.0, 1.0]


def test_a_model_of_langchain_embeds_queries_in_its_own_way():
    embedder = TextEmbedder(Model(), 2)

    assert [floats(one) for one in embedder.embed(["x"])] == [[1, 0]]
    assert floats(embedder.embed_query("x")) == [0, 1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "2 vectors came back for 1 texts"),
        ([], "0 vectors came back for 1 texts"),
        ([[1.0]], "a vector of 1 numbers came back, and `store.index.dims` is 2"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([["x", "y"]], "could not convert"),
    ],
)
def test_answers_that_make_no_sense(answer, complaint):
    with pytest.raises(ValueError, match=complaint):
        TextEmbedder(lambda _: answer, 2).embed(["text"])


VALUE = {
    "text": "tea",
    "deep": {"er": ["a", "b"]},
    "parts": [{"text": "x"}, {"no": 1}, {"text": "y"}],
    "number": 5,
    "none": None,
}


@pytest.mark.parametrize(
    ("index", "texts"),
    [
        (None, [("text", "tea")]),
        (False, []),
        (["deep.er[0]"], [("deep.er[0]", "a")]),
        (["deep.er[-1]"], [("deep.er[-1]", "b")]),
        (["parts[*].text"], [("parts[*].text.0", "x"), ("parts[*].text.1", "y")]),
        (["number", "none", "missing", "text"], [("number", "5"), ("text", "tea")]),
        (["deep"], [("deep", '{"er": ["a", "b"]}')]),
        (["$"], [("$", json.dumps(VALUE, sort_keys=True))]),
    ],
)
def test_what_of_a_value_is_embedded(index, texts):
    assert TextEmbedder(lengths, 2, ["text"]).texts(VALUE, index) == texts


def project(tmp_path, embed) -> Project:
    (tmp_path / "model.py").write_text("def embed(texts):\n    return [[1.0] for _ in texts]\n")
    return Project(tmp_path, {"store": {"index": {"dims": 1, "embed": embed}}})


def made(tmp_path, embed) -> TextEmbedder:
    found = project(tmp_path, embed)
    return TextEmbedder.of(found, found.config["store"]["index"])


def test_a_function_of_a_file(tmp_path):
    assert floats(made(tmp_path, "./model.py:embed").embed_query("x")) == [1]


@pytest.mark.parametrize("embed", ["./model.py:nothing", "./nowhere.py:embed", "no.module:embed"])
def test_a_function_that_is_not_there_is_named(tmp_path, embed):
    with pytest.raises(ProjectError, match=r"`store\.index\.embed`"):
        made(tmp_path, embed)


def test_a_provider_that_is_not_installed_is_named(tmp_path):
    with pytest.raises(ProjectError, match=r"`store\.index\.embed` is `nobody:model`"):
        made(tmp_path, "nobody:model")
