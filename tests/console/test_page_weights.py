"""The scripts that a page loads at once, as served: at most 130 KB for every page."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders

from apps.core.http.static_files import remove_comments
from tests.required_tools import skip_without

LIMIT = 130 * 1024
ROOT = Path(settings.STATICFILES_DIRS[0]).parent
TEMPLATES, SCRIPTS = ROOT / "templates", ROOT / "static/js"
LOADER = (SCRIPTS / "app.js").read_text()
MODULES = dict(re.findall(r'"([\w-]+)": \(\) => import\("\./(elements/[^"]+)"\)', LOADER))
LATE = set(re.findall(r'"([\w-]+)"', re.search(r"WHEN_VISIBLE = new Set\((.*?)\)", LOADER)[1]))
ALTERNATIVES = {"trace-tree", "trace-transcript"}
"""Elements of which a page has one."""
_STATIC_IMPORT = re.compile(
    r'^\s*(?:import|export)\b[^;]*?\bfrom\s*"([^"]+)"|^\s*import\s*"([^"]+)"', re.MULTILINE
)
_COMMENT = re.compile(r"{#.*?#}", re.DOTALL)

pytestmark = skip_without(
    "static/vendor is empty: npm run vendor" if finders.find("vendor/htmx.js") is None else None
)


def read_template(name: str) -> str:
    return _COMMENT.sub("", (TEMPLATES / name).read_text())


def collect_templates(name: str, seen: dict[str, str]) -> dict[str, str]:
    """Add the template and those that it names, however they are included."""
    if name not in seen and (TEMPLATES / name).exists():
        seen[name] = read_template(name)
        for other in re.findall(r"""['"]([\w/-]+\.html)""", seen[name]):
            collect_templates(other, seen)
    return seen


def collect_modules(path: Path, seen: dict[Path, int]) -> dict[Path, int]:
    """Add the size of the module and of what it imports at once."""
    path = path.resolve()
    if path in seen:
        return seen
    if "vendor" in path.parts:
        seen[path] = path.stat().st_size
        return seen
    served = remove_comments(path.read_text())
    seen[path] = len(served.encode())
    for name, bare in _STATIC_IMPORT.findall(served):
        collect_modules(path.parent / (name or bare), seen)
    return seen


def page_weights() -> dict[str, int]:
    """Return the size of the scripts of each page in its heaviest state."""
    weights = {}
    for path in sorted(TEMPLATES.rglob("*.html")):
        name = str(path.relative_to(TEMPLATES))
        templates = collect_templates(name, {})
        if "base.html" not in templates:
            continue
        text = "".join(templates.values())
        elements = {element for element in MODULES if re.search(rf"<{element}[\s>]", text)} - LATE
        states = [elements - ALTERNATIVES | {one} for one in elements & ALTERNATIVES] or [elements]
        for state in states:
            modules = collect_modules(SCRIPTS / "app.js", {})
            for element in state:
                collect_modules(SCRIPTS / MODULES[element], modules)
            if re.search(r"hx-(get|post)", text):
                collect_modules(SCRIPTS / "htmx.js", modules)
            if 'hx-swap="morph"' in text:
                collect_modules(ROOT / "static/vendor/idiomorph.js", modules)
            weights[name] = max(weights.get(name, 0), sum(modules.values()))
    return weights


def test_scripts_of_each_page_are_within_the_limit():
    weights = page_weights()

    heaviest = sorted(weights.items(), key=lambda item: -item[1])
    print(f"{len(weights)} pages; the heaviest: {heaviest[:5]}")  # noqa: T201
    assert len(weights) > 100
    assert weights["tracing/trace.html"] > weights["account/profile.html"] > 10_000
    assert {name: size for name, size in heaviest if size > LIMIT} == {}


def test_libraries_of_late_elements_are_loaded_by_nothing_else():
    late = {path for name in LATE for path in collect_modules(SCRIPTS / MODULES[name], {})}
    others = {
        path
        for name in MODULES.keys() - LATE
        for path in collect_modules(SCRIPTS / MODULES[name], {})
    }
    libraries = {path.name for path in late if "vendor" in path.parts}

    assert libraries == {"markdown.js", "uplot.js", "swagger.js"}
    assert not libraries & {path.name for path in others if "vendor" in path.parts}


@skip_without(None if (ROOT / "node_modules/esbuild").exists() else "node_modules has no esbuild")
def test_scripts_without_comments_are_the_same_scripts(tmp_path):
    paths = sorted(SCRIPTS.rglob("*.js"))
    for number, path in enumerate(paths):
        (tmp_path / f"{number}.js").write_text(remove_comments(path.read_text()))
    script = """
    import { readFileSync } from "node:fs";
    import { transformSync } from "esbuild";
    const minify = (path) => transformSync(readFileSync(path, "utf8"), { minify: true }).code;
    const [folder, ...paths] = process.argv.slice(2);
    for (const [number, path] of paths.entries())
      if (minify(path) !== minify(`${folder}/${number}.js`)) console.log(path);
    """
    program = ROOT / "node_modules/.compare_scripts.mjs"
    program.write_text(script)
    try:
        done = subprocess.run(
            ["node", program, tmp_path, *paths], check=False, capture_output=True, text=True
        )
    finally:
        program.unlink()

    served = sum((tmp_path / f"{number}.js").stat().st_size for number in range(len(paths)))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert served < 0.85 * sum(path.stat().st_size for path in paths)
