"""Reads the source of an evaluator without running it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from apps.evaluators.code.results import MARKS, RESULTS
from apps.evaluators.errors import BadEvaluator
from apps.evaluators.scoring import MAX_KEYS, REASONING_NAMES
from apps.feedback.models import KEY_LENGTH

FUNCTION = "perform_eval"
MAX_CODE_BYTES = 65_536
PYTHON = "python"
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_language(language: str) -> None:
    """Raises `BadEvaluator`."""
    if language != PYTHON:
        raise BadEvaluator(
            f"`language`: evaluators in `{language:.50}` are not supported; write it in Python, as"
            f" `def {FUNCTION}(run, example)`."
        )


def check_code(code: str, default_key: str) -> list[str]:
    """Return the feedback keys that the source shows. Raises `BadEvaluator`."""
    if len(code.encode("utf-8", "replace")) > MAX_CODE_BYTES:
        raise BadEvaluator(f"`code` has more than {MAX_CODE_BYTES:,} bytes.")
    try:
        module = ast.parse(code)
    except SyntaxError as error:
        raise BadEvaluator(f"`code`, line {error.lineno or 1}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError):
        raise BadEvaluator("`code` is not valid Python.") from None
    functions = [node for node in module.body if isinstance(node, _Function)]
    function = next((node for node in reversed(functions) if node.name == FUNCTION), None)
    if function is None:
        raise BadEvaluator(f"`code` must define `def {FUNCTION}(run, example)`.")
    _check_parameters(function.args)
    keys = dict.fromkeys(_find_keys(function, default_key))
    return [key for key in keys if 0 < len(key) <= KEY_LENGTH][:MAX_KEYS]


def _check_parameters(parameters: ast.arguments) -> None:
    by_position = [*parameters.posonlyargs, *parameters.args]
    required = len(by_position) - len(parameters.defaults)
    required_by_name = sum(default is None for default in parameters.kw_defaults)
    if required > 2 or required_by_name or not (by_position or parameters.vararg):
        raise BadEvaluator(f"`{FUNCTION}` must take `run`, or `run` and `example`.")


def _find_keys(function: _Function, default_key: str) -> Iterator[str]:
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    for node in sorted(returns, key=lambda node: node.lineno):
        if node.value is not None:
            yield from _keys_of(node.value, default_key)


def _keys_of(value: ast.expr, default_key: str) -> Iterator[str]:
    if isinstance(value, ast.List):
        for item in value.elts:
            if isinstance(item, ast.Dict):
                yield from _keys_of(item, default_key)
    if not isinstance(value, ast.Dict):
        if isinstance(value, ast.Constant | ast.Compare | ast.BoolOp):
            yield default_key
        return
    fields = {
        key.value: item
        for key, item in zip(value.keys, value.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    if RESULTS in fields:
        if isinstance(fields[RESULTS], ast.List):
            yield from _keys_of(fields[RESULTS], default_key)
    elif MARKS & fields.keys():
        key = fields.get("key")
        if key is None:
            yield default_key
        elif isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value
    else:
        yield from (name for name in fields if name not in REASONING_NAMES)
