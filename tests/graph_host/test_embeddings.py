"""Calls of a project's embedding function and the validation of its results."""

from __future__ import annotations

import json
import struct

import pytest
from langchain_core.embeddings import Embeddings

from apps.graph_host.embeddings import TextEmbedder
from apps.graph_host.project import AgentProject, ProjectError


def embed_lengths(texts):
    return [[float(len(text)), 0.0] for text in texts]


async def embed_lengths_async(texts):
    return embed_lengths(texts)


def unpack_floats(packed):
    return list(struct.unpack(f"<{len(packed) // 4}f", packed))


@pytest.mark.parametrize("function", [embed_lengths, embed_lengths_async])
async def test_sync_and_async_functions_serve_sync_and_async_callers(function):
    embedder = TextEmbedder(function, 2)

    assert [unpack_floats(packed) for packed in await embedder.aembed(["a", "bcd"])] == [
        [1, 0],
        [3, 0],
    ]
    assert unpack_floats(await embedder.aembed_query("ab")) == [2, 0]
    # On the thread of the event loop, which cannot wait for a coroutine of this loop.
    assert [unpack_floats(packed) for packed in embedder.embed(["a"])] == [[1, 0]]
    assert unpack_floats(embedder.embed_query("ab")) == [2, 0]


async def test_an_empty_list_of_texts_does_not_call_the_function():
    embedder = TextEmbedder(lambda _: pytest.fail("called"), 2)

    assert await embedder.aembed([]) == []
    assert embedder.embed([]) == []


class Model(Embeddings):
    def embed_documents(self, texts):
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text):
        return [0.0, 1.0]


def test_a_langchain_model_embeds_queries_with_its_own_method():
    embedder = TextEmbedder(Model(), 2)

    assert [unpack_floats(packed) for packed in embedder.embed(["x"])] == [[1, 0]]
    assert unpack_floats(embedder.embed_query("x")) == [0, 1]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ([[1.0, 2.0], [3.0, 4.0]], "The model returned 2 vectors for 1 texts"),
        ([], "The model returned 0 vectors for 1 texts"),
        ([[1.0]], "The model returned a vector of 1 numbers, but `store.index.dims` is 2"),
        ([[1.0, float("nan")]], "not finite"),
        ([[1.0, float("inf")]], "not finite"),
        ([["x", "y"]], "could not convert"),
    ],
)
def test_an_invalid_embedding_result_is_rejected(answer, complaint):
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
def test_the_index_paths_select_the_embedded_texts(index, texts):
    assert TextEmbedder(embed_lengths, 2, ["text"]).texts(VALUE, index) == texts


def make_project(tmp_path, embed) -> AgentProject:
    (tmp_path / "model.py").write_text("def embed(texts):\n    return [[1.0] for _ in texts]\n")
    return AgentProject(tmp_path, {"store": {"index": {"dims": 1, "embed": embed}}})


def make_embedder(tmp_path, embed) -> TextEmbedder:
    project = make_project(tmp_path, embed)
    return TextEmbedder.load(project, project.config["store"]["index"])


def test_an_embedding_function_is_loaded_from_a_file(tmp_path):
    assert unpack_floats(make_embedder(tmp_path, "./model.py:embed").embed_query("x")) == [1]


@pytest.mark.parametrize("embed", ["./model.py:nothing", "./nowhere.py:embed", "no.module:embed"])
def test_a_missing_embedding_function_is_named_in_the_error(tmp_path, embed):
    with pytest.raises(ProjectError, match=r"`store\.index\.embed`"):
        make_embedder(tmp_path, embed)


def test_an_unknown_embedding_provider_is_named_in_the_error(tmp_path):
    with pytest.raises(ProjectError, match=r"`store\.index\.embed` is `unknown:model`"):
        make_embedder(tmp_path, "unknown:model")
