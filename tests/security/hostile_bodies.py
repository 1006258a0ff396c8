"""Hostile request bodies: whole ones, and valid ones with one value replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
_MARK = "\ue000replaced"
MEGABYTE = "x" * 1_000_000
_MAX_REPEATED = 100_000
"""Length of a value that replaces all others at once."""

JSON_VALUES = {
    "null": "null",
    "minus one": "-1",
    "400 digits": "9" * 400,
    "beyond doubles": "1e400",
    "not a number": "NaN",
    "true": "true",
    "text": '"x"',
    "empty text": '""',
    "nul": r'"a\u0000b"',
    "lone surrogate": r'"\ud800"',
    "megabyte": json.dumps(MEGABYTE),
    "spaces": json.dumps("{{" + " " * 50_000),
    "template": '"{a.__class__}{0}{{%s}}"',
    "late time": '"9999-12-31T23:59:59-14:00"',
    "early time": '"0001-01-01T00:00:00+14:00"',
    "foreign id": '"ffffffff-ffff-ffff-ffff-ffffffffffff"',
    "deep": '{"a":' * 2000 + "1" + "}" * 2000,
    "allowed depth": '{"a":' * 150 + "1" + "}" * 150,
    "many": json.dumps(["x"] * 3000),
    "objects": json.dumps([{"a": None}] * 3),
    "lists": "[[[null]], []]",
    "odd keys": r'{"": 1, "\u0000": 2, "__proto__": 3, "a.b": {"$ref": "#"}}',
}
TEXT_VALUES = {
    "nothing": "",
    "minus one": "-1",
    "5,000 digits": "9" * 5000,
    "not a number": "NaN",
    "beyond doubles": "1e400",
    "nul": "a\0b",
    "lone surrogate": b"\xed\xa0\x80",
    "no utf-8": b"\xff\xfe",
    "megabyte": MEGABYTE,
    "deep": "[" * 3000,
    "null": "null",
    "object": '{"a": {"\\u0000": 1e400}}',
    "late time": "9999-12-31T23:59:59-14:00",
    "foreign id": "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "expression": "eq(and(" * 200,
    "path": "../" * 50,
    "markup": "<svg/onload=alert(1)>{{7*7}}{%x%}",
}


@dataclass(frozen=True)
class HostileBody:
    name: str
    content: bytes
    content_type: str = JSON


def list_whole_bodies(valid: Any, fields: dict[str, Any]) -> list[HostileBody]:
    """Return bodies that are hostile as a whole; `valid` is the JSON, `fields` the form."""
    text = json.dumps(valid, default=str)
    form = encode_form(fields or {"a": "b"})
    part = b'--b\r\nContent-Disposition: form-data; name="a"; filename="a"\r\n\r\nx\r\n'
    return [
        *(HostileBody(f"JSON {text[:20]!r}", text.encode()) for text in (
            "", "{", "nul", "null", "[]", '""', "1", "{}", "[null]", "[[]]", "[1]", "NaN", "\x00",
            "[" * 2000 + "]" * 2000, '{"a":' * 2000 + "1" + "}" * 2000, '"' + "x" * 1_000_000 + '"',
        )),
        HostileBody("no UTF-8", b'{"\xff\xfe": "\xed\xa0\x80"}'),
        HostileBody("byte order mark", b"\xef\xbb\xbf" + text.encode()),
        HostileBody("keys twice", _with_keys_twice(text)),
        HostileBody("UTF-16", text.encode("utf-16"), f"{JSON}; charset=utf-16"),
        HostileBody("unknown charset", text.encode(), f"{JSON}; charset=no-such"),
        HostileBody("no type", text.encode(), ""),
        HostileBody("odd type", text.encode(), "a/b/c;;=;\xfc"),
        HostileBody("JSON as a form", text.encode(), FORM),
        HostileBody("a form as JSON", form, JSON),
        HostileBody("form in UTF-16", form, f"{FORM}; charset=utf-16"),
        HostileBody("form in an unknown charset", form, f"{FORM}; charset=no-such"),
        HostileBody("form of many fields", b"&".join([b"a=b"] * 20_000), FORM),
        HostileBody("form without boundary", part, "multipart/form-data"),
        HostileBody("form with another boundary", part, "multipart/form-data; boundary=other"),
        HostileBody("form that does not end", part, MULTIPART),
        HostileBody("form of parts without names", part.replace(b' name="a";', b""), MULTIPART),
        HostileBody("form with base64", part.replace(
            b"\r\n\r\nx", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n!"), MULTIPART),
        HostileBody("form of files", b"".join(
            part.replace(b'name="a"', b'name="%b"' % name.encode()) for name in fields
        ) + b"--b--\r\n", MULTIPART),
    ]  # fmt: skip


def _with_keys_twice(text: str) -> bytes:
    if not text.startswith("{") or text == "{}":
        return b'{"a": 1, "a": [2]}'
    return f'{text[:-1]}, {text[1:-1]}, "id": null, "id": []}}'.encode()


def encode_form(fields: dict[str, Any]) -> bytes:
    return urlencode(fields, doseq=True).encode()


def list_json_bodies(valid: Any, others: list[str]) -> Iterator[HostileBody]:
    """Yield the body with each value replaced by each hostile one, and so with other members."""
    added = [((name,), {**valid, name: _MARK}) for name in others]
    for path, changed in [*_replacements(valid), *added]:
        text = json.dumps(changed, default=str)
        for name, hostile in JSON_VALUES.items():
            content = text.replace(json.dumps(_MARK), hostile).encode()
            yield HostileBody(f"{'.'.join(path)} = {name}", content)
    everywhere = json.dumps(_replaced_leaves(valid), default=str)
    for name, hostile in JSON_VALUES.items():
        if len(hostile) < _MAX_REPEATED:
            content = everywhere.replace(json.dumps(_MARK), hostile).encode()
            yield HostileBody(f"all = {name}", content)


def _replacements(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if path:
        yield path, _MARK
    if isinstance(value, dict):
        for name, member in value.items():
            for inner, changed in _replacements(member, (*path, name)):
                yield inner, {**value, name: changed}
    elif isinstance(value, list):
        for index, member in enumerate(value):
            for inner, changed in _replacements(member, (*path, str(index))):
                yield inner, [*value[:index], changed, *value[index + 1 :]]


def _replaced_leaves(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _replaced_leaves(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_replaced_leaves(member) for member in value]
    return _MARK


def list_forms(fields: dict[str, Any]) -> Iterator[HostileBody]:
    """Yield the form with each field replaced by each hostile text, twice, and missing."""
    for field in fields:
        others = {name: value for name, value in fields.items() if name != field}
        yield HostileBody(f"{field} is missing", encode_form(others), FORM)
        for name, hostile in TEXT_VALUES.items():
            content = encode_form({**others, field: hostile})
            yield HostileBody(f"{field} = {name}", content, FORM)
    for name, hostile in TEXT_VALUES.items():
        if len(hostile) < _MAX_REPEATED:
            yield HostileBody(f"all = {name}", encode_form(dict.fromkeys(fields, hostile)), FORM)
