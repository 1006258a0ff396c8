"""Manifests of prompts in the serialisation of `langchain_core.load`.

A manifest is the JSON of untrusted callers: it is bounded in size and depth, never executed, and
its values appear in no error message.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from apps.core.json import dumps
from apps.prompts import errors

MAX_MANIFEST_BYTES = 1_048_576
MAX_DEPTH = 100
"""Nesting of objects and lists. `langchain_core` loads manifests recursively."""
MAX_NODES = 50_000

PROMPT_CLASSES = frozenset(
    {
        "PromptTemplate",
        "ChatPromptTemplate",
        "FewShotPromptTemplate",
        "FewShotPromptWithTemplates",
        "FewShotChatMessagePromptTemplate",
        "ImagePromptTemplate",
        "DictPromptTemplate",
        "PipelinePromptTemplate",
        "StructuredPrompt",
    }
)
SEQUENCE_CLASSES = frozenset({"RunnableSequence", "PromptPlayground"})
BINDING_CLASS = "RunnableBinding"
_PLAYGROUND_ID = ["langsmith", "playground", "PromptPlayground"]
_SEQUENCE_ID = ["langchain", "schema", "runnable", "RunnableSequence"]
_SORTED = orjson.OPT_SORT_KEYS
_CLASS_NAME = re.compile(r"[A-Za-z_]{1,60}")
"""Without digits: an error must not repeat a key that was sent in the place of a name."""


def validate_manifest(manifest: Any) -> dict[str, Any]:
    """Return the manifest. Raises `BadManifest` unless its root is a prompt, or starts with one."""
    if not isinstance(manifest, dict):
        raise errors.BadManifest("The manifest must be an object.")
    check_bounds(manifest, errors.BadManifest)
    if "id" not in manifest:
        raise errors.BadManifest("Manifest must have an id field")
    if _find_prompt(manifest) is None:
        raise errors.BadManifest(
            "Unsupported manifest type: the root must be a prompt template, or a sequence or"
            f" binding that begins with one.{_describe_type(manifest['id'])}"
        )
    return manifest


def _describe_type(id_: Any) -> str:
    """Return a sentence that the public clients expect, if the id ends with a class name."""
    name = id_[-1] if isinstance(id_, list) and id_ else None
    if not isinstance(name, str) or _CLASS_NAME.fullmatch(name) is None:
        return ""
    return f" Manifest type {name} is not supported."


def check_bounds(value: Any, error: type[errors.BadManifest | errors.BadDirectory]) -> None:
    """Raise the error for JSON that is too large, too deep, or has non-string keys."""
    pending, nodes = [(value, 1)], 0
    while pending:
        node, depth = pending.pop()
        nodes += 1
        if depth > MAX_DEPTH:
            raise error(f"The JSON is nested more than {MAX_DEPTH} levels deep.")
        if nodes > MAX_NODES:
            raise error(f"The JSON has more than {MAX_NODES} values.")
        children = node.values() if isinstance(node, dict) else node
        if isinstance(node, dict | list):
            pending += [(child, depth + 1) for child in children]
    if len(dumps(value)) > MAX_MANIFEST_BYTES:
        raise error(f"The JSON has more than {MAX_MANIFEST_BYTES} bytes.")


def class_name(node: Any) -> str:
    """The class of a serialised object; empty for anything else."""
    if not isinstance(node, dict) or node.get("lc") != 1 or node.get("type") != "constructor":
        return ""
    path = node.get("id")
    if not isinstance(path, list) or not path or not all(isinstance(part, str) for part in path):
        return ""
    return str(path[-1])


def _kwargs(node: Mapping[str, Any]) -> Mapping[str, Any]:
    kwargs = node.get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def _find_prompt(manifest: dict[str, Any]) -> dict[str, Any] | None:
    """The prompt that the manifest is or begins with."""
    node: Any = manifest
    while True:
        name = class_name(node)
        if name in PROMPT_CLASSES:
            prompt: dict[str, Any] = node
            return prompt
        if name in SEQUENCE_CLASSES:
            node = _kwargs(node).get("first")
        elif name == BINDING_CLASS:
            node = _kwargs(node).get("bound")
        else:
            return None


def prompt_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """The prompt alone, without the model that the manifest binds to it."""
    return _find_prompt(manifest) or manifest


def with_model(manifest: dict[str, Any]) -> dict[str, Any]:
    """The whole manifest. `langchain_core` does not load the class of a playground's sequence."""
    if manifest.get("id") == _PLAYGROUND_ID:
        return manifest | {"id": _SEQUENCE_ID}
    return manifest


def find_model(manifest: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The bound model, None without one; and the keywords that bindings add to its calls."""
    node: Any = manifest
    bound: dict[str, Any] = {}
    while class_name(node) == BINDING_CLASS:
        bound = {**_bound_kwargs(node), **bound}
        node = _kwargs(node).get("bound")
    if class_name(node) not in SEQUENCE_CLASSES:
        return None, bound
    kwargs = _kwargs(node)
    middle = kwargs.get("middle")
    model: Any = middle[0] if isinstance(middle, list) and middle else kwargs.get("last")
    while class_name(model) == BINDING_CLASS:
        bound = {**_bound_kwargs(model), **bound}
        model = _kwargs(model).get("bound")
    return model, bound


def _bound_kwargs(binding: Mapping[str, Any]) -> dict[str, Any]:
    kwargs = _kwargs(binding).get("kwargs")
    return kwargs if isinstance(kwargs, dict) else {}


def model_class(manifest: dict[str, Any]) -> str | None:
    """The class name of the bound model, such as `ChatOpenAI`; None without a model."""
    model, _ = find_model(manifest)
    if class_name(model):
        return class_name(model)
    path = model.get("id") if isinstance(model, dict) else None
    return str(path[-1]) if isinstance(path, list) and path else None


def input_variables(manifest: dict[str, Any]) -> list[str]:
    """The names of the prompt's variables, in order."""
    names = _kwargs(prompt_of(manifest)).get("input_variables")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def content_hash(content: Any) -> str:
    """SHA-256 of the JSON with sorted keys, in hexadecimal."""
    return hashlib.sha256(orjson.dumps(content, option=_SORTED)).hexdigest()


def commit_hash(parent_hash: str, manifest_hash: str) -> str:
    """The name of a commit: equal histories with equal content have equal names."""
    return hashlib.sha256(f"commit\n{parent_hash}\n{manifest_hash}".encode()).hexdigest()


def as_base64(hexadecimal: str) -> str:
    return base64.b64encode(bytes.fromhex(hexadecimal)).decode()


def iterate_secrets(manifest: Any) -> Iterator[str]:
    """The names of the secrets that the manifest refers to."""
    pending = [manifest]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending += node
        elif isinstance(node, dict):
            path = node.get("id")
            if node.get("lc") == 1 and node.get("type") == "secret" and isinstance(path, list):
                yield from (name for name in path if isinstance(name, str))
            else:
                pending += node.values()
