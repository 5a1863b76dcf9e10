"""A hook of mkdocs: the pages of the reference, made from the package when the manual is built.

`reference/` gets a page for each family of ops, one for the other public names, one for the command line and one for
every message of an error or a warning; each notebook becomes a page. Links of the documents to files outside of docs/
become links to the repository.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import inspect
import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import softmesh
from softmesh import errors
from softmesh.cli import commands
from softmesh.dispatch.entry_point import EntryPoint
from softmesh.namespaces import LAZY

ROOT = Path(softmesh.__file__).parent
REPOSITORY = "https://github.com/softmesh/softmesh/blob/main/"
FAMILIES = {
    "attention": "Attention",
    "collectives": "Collectives",
    "conv": "Convolutions",
    "creation": "Creation",
    "data_movement": "Moving and reshaping data",
    "elementwise": "Element by element",
    "embedding": "Embeddings",
    "matmul": "Products",
    "moe": "Mixture of experts",
    "normalization": "Norms and softmax",
    "pool": "Pooling",
    "reduction": "Reductions",
    "sockets": "Sockets",
    "tensor": "Tensors and transfers",
}
OTHER = "Further ops"
PACKAGES = {  # those that programs import from, beside the top namespace
    "collectives": "Schedules of collectives as values: made, checked, run, drawn.",
    "distributed": "Ops that plan their own communication.",
    "graph": "What ran, captured as a graph.",
    "kernels": "What kernels call, and the programs that hold them.",
    "metal": "The low-level runtime: devices, buffers, queues, programs.",
    "model_preprocessing": "Parameters of torch modules, prepared for a mesh.",
    "operation_tracer": "Each op with its arguments, written to a file.",
    "tracer": "A graph of the ops of a model, drawn.",
    "train": "Training: modules, optimizers, data, parallel plans.",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, text in reference_pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    for notebook in sorted(Path(config.docs_dir).glob("notebooks/*.ipynb")):
        page = f"notebooks/{notebook.stem}.md"
        files.append(File.generated(config, page, content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Files beside docs/ are not part of the site: the repository shows them."""
    return re.sub(r"\]\(\.\./(?=[^)]*\))", f"]({REPOSITORY}", markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return without_network(output, "../" * page.url.count("/"))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    return without_network(output, "")


def without_network(page: str, root: str) -> str:
    """For search in pages that are opened from a folder the theme loads a script from the network: ours needs none."""
    return page.replace("https://unpkg.com/iframe-worker/shim", f"{root}file_worker.js")


def reference_pages() -> dict[str, str]:
    ops = operations()
    pages = {page_of(family): family_page(family, members) for family, members in ops.items()}
    pages["values"] = values_page()
    pages |= {f"softmesh-{name}": package_page(name, about) for name, about in PACKAGES.items()}
    pages["command-line"] = command_line_page()
    pages["errors"] = errors_page()
    pages["index"] = index_page(ops)
    return pages


# -- notebooks -------------------------------------------------------------------------------------------


def notebook_page(notebook: Path) -> str:
    """Its cells with what they showed when it was last run; the suite runs it, too."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        parts += [shown for output in cell["outputs"] if (shown := output_of(output))]
    parts.append(f"*[{notebook.name}]({REPOSITORY}docs/notebooks/{notebook.name}) is this page as a notebook.*")
    return "\n\n".join(parts) + "\n"


def output_of(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    if "text/html" in data:
        return f"<div style='overflow-x: auto'>{''.join(data['text/html'])}</div>"
    return f"```text\n{''.join(data['text/plain'])}\n```" if "text/plain" in data else ""


# -- ops -----------------------------------------------------------------------------------------------


def operations() -> dict[str, dict[str, EntryPoint]]:
    """Every public callable that makes, moves or frees tensors, under its dotted name, by family."""
    found: dict[str, dict[str, EntryPoint]] = defaultdict(dict)
    for name, op in sorted(public_entry_points()):
        found[family_of(op)][name] = op
    return dict(sorted(found.items(), key=lambda item: (item[0] == OTHER, item[0])))


def public_entry_points() -> Iterator[tuple[str, EntryPoint]]:
    seen = set()
    for module, prefix in namespaces():
        names = [*vars(module), *(LAZY if module is softmesh else ())]
        for name in dict.fromkeys(names):
            value, dotted = getattr(module, name), f"{prefix}{name}"
            if isinstance(value, EntryPoint) and not name.startswith("_") and dotted not in seen:
                seen.add(dotted)
                yield dotted, value


def namespaces() -> Iterator[tuple[Any, str]]:
    yield softmesh, "ttnn."
    for name in ("transformer", "experimental", "kv_cache", "distributed", "prim"):
        yield getattr(softmesh, name), f"ttnn.{name}."
    for name, value in vars(softmesh.experimental).items():
        if inspect.ismodule(value) and not name.startswith("_"):
            yield value, f"ttnn.experimental.{name}."


def family_of(op: EntryPoint) -> str:
    definition = getattr(op, "definition", None)
    function = getattr(definition, "define", None) or getattr(op, "function", None)
    module = getattr(inspect.unwrap(function), "__module__", "") if function is not None else type(op).__module__
    words = module.split(".")
    named = next((FAMILIES[word] for word in words if word in FAMILIES), None)
    return named or OTHER


def page_of(family: str) -> str:
    return re.sub(r"[^a-z]+", "-", family.lower()).strip("-")


def family_page(family: str, members: dict[str, EntryPoint]) -> str:
    parts = [f"# {family}", ""]
    for name, op in members.items():
        text = inspect.getdoc(op) or ""
        parts += [f"## {name} {{ #{name} }}", "", "```text", text.replace("```", "'''"), "```", ""]
    return "\n".join(parts)


def index_page(ops: dict[str, dict[str, EntryPoint]]) -> str:
    parts = ["# Names", "", f"{sum(map(len, ops.values()))} callables, by family; [values and types](values.md)", ""]
    for family, members in ops.items():
        links = ", ".join(f"[{name}]({page_of(family)}.md#{name})" for name in members)
        parts += [f"## {family}", "", links, ""]
    parts += [
        "## Packages",
        "",
        *(f"* [softmesh.{name}](softmesh-{name}.md): {said}" for name, said in PACKAGES.items()),
    ]
    return "\n".join(parts)


# -- values, commands, errors ------------------------------------------------------------------------------


def values_page() -> str:
    """Classes, functions and constants of the top namespace that are no ops."""
    parts = ["# Values and types", ""]
    members = {name: getattr(softmesh, name) for name in (*vars(softmesh), *LAZY) if not name.startswith("_")}
    shown = {name: value for name, value in members.items() if not isinstance(value, EntryPoint)}
    return "\n".join(parts + described(shown, "ttnn"))


def package_page(name: str, about: str) -> str:
    """What a package offers: the names it lists, or those of ours that lie in it."""
    package = importlib.import_module(f"softmesh.{name}")
    names = getattr(package, "__all__", None) or [
        name for name, value in vars(package).items() if getattr(value, "__module__", "").startswith("softmesh.")
    ]
    members = {name: getattr(package, name) for name in names if not name.startswith("_")}
    return "\n".join([f"# softmesh.{name}", "", about, "", *described(members, f"softmesh.{name}")])


def described(members: dict[str, Any], prefix: str) -> list[str]:
    """A section for each: signature and docstring, or the value."""
    parts: list[str] = []
    for name, value in sorted(members.items(), key=lambda item: item[0].lower()):
        if inspect.ismodule(value):
            continue
        is_described = inspect.isclass(value) or inspect.isroutine(value)
        is_described |= isinstance(value, EntryPoint)
        about = (inspect.getdoc(value) or "") if is_described else repr(value)[:300]
        signature = ""
        if is_described:
            with contextlib.suppress(TypeError, ValueError):
                signature = re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
        anchor = f"{prefix}.{name}"
        signature = re.sub(r"(: |-> )'([^']*)'", r"\1\2", signature)  # annotations that are kept as strings
        call = textwrap.fill(f"{anchor}{signature}", 88, subsequent_indent="    ", break_long_words=False)
        text = "\n\n".join(filter(None, (call, about)))
        parts += [f"## {anchor} {{ #{anchor} }}", "", "```text", text.replace("```", "'''"), "```", ""]
    return parts


def command_line_page() -> str:
    from softmesh.processes.launcher.tt_run import tt_run

    parts = ["# Command line", ""]
    top = click.Context(commands, info_name="softmesh", max_content_width=100, help_option_names=["-h", "--help"])
    named = [("softmesh", commands, top)]
    for name in commands.list_commands(top):
        command = commands.get_command(top, name)
        assert command is not None
        named.append((f"softmesh {name}", command, click.Context(command, info_name=name, parent=top)))
    named.append(("tt-run", tt_run, click.Context(tt_run, info_name="tt-run", max_content_width=100)))
    for name, command, context in named:
        parts += [f"## {name} {{ #{name.replace(' ', '-')} }}", "", "```text", command.get_help(context), "```", ""]
    return "\n".join(parts)


_LEAST = 20  # characters of a message; what is shorter is the name of an op or an argument


def errors_page() -> str:
    classes = error_classes()
    told = messages(set(classes))
    parts = [
        "# Errors and warnings",
        "",
        "Every class, and every message that is raised or warned with it, cause and remedy included; `{...}` stands "
        "for what depends on the call. Search for the words of a message to find it; the number before it is its "
        "address: `errors.html#m-1a2b3c4d`.",
        "",
    ]
    for name, node in classes.items():
        bases = ", ".join(map(ast.unparse, node.bases))
        about = (ast.get_docstring(node) or "").replace("<", "&lt;")
        parts += [f"## {name} {{ #{name} }}", "", f"*{bases}.* {about}", ""]
        parts += [f"* {message_anchor(name, text)} `{text}`" for text in sorted(told.get(name, ()))]
        parts.append("")
    return "\n".join(parts)


def error_classes() -> dict[str, ast.ClassDef]:
    """Errors and warnings of softmesh.errors, and what is derived from them anywhere in the package, at any depth."""
    nodes = [node for file in sorted(ROOT.rglob("*.py")) for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    own = ast.parse(Path(errors.__file__).read_text("utf-8"))
    found = {node.name: node for node in own.body if isinstance(node, ast.ClassDef)}
    count = 0
    while count < len(found):
        count = len(found)
        derived = (node for node in classes if any(ast.unparse(base) in found for base in node.bases))
        found |= {node.name: node for node in derived if node.name not in found}
    return found


def message_anchor(owner: str, text: str) -> str:
    """An address for one message, which stays as long as its words do."""
    number = hashlib.sha256(f"{owner}: {text}".encode()).hexdigest()[:8]
    return f'<a id="m-{number}" href="#m-{number}">{number}</a>'


def messages(names: set[str]) -> dict[str, set[str]]:
    """The texts of `raise Name(...)`, of calls that are given a warning's or an error's class beside a text, and those
    that a class of errors gives to its own base."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in ROOT.rglob("*.py")]
    everywhere = _told_by_functions(trees)
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        told = everywhere | _told_by_functions([tree])
        for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))):
            values = _named_values(scope)
            for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                owners = _owners(call, names)
                for owner in owners:
                    found[owner].update(_texts_of(call, values, told))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name in names:
                bases = (call for call in ast.walk(node) if isinstance(call, ast.Call) and _is_given_to_base(call))
                found[node.name].update(text for call in bases for text in _texts_of(call, _named_values(node), told))
    return found


_SANITIZER = {"SanitizerWarning", "SanitizerError"}
_TELLERS = {  # what is given a text alone, and the classes it raises or warns with
    "refused": {"ArgumentError"},
    "communication_policy.apply": {"ImplicitCommunication", "ImplicitCommunicationError"},
    "self._report.tell": _SANITIZER,
    "self.report.tell": _SANITIZER,
}
_Told = dict[str, list[ast.expr]]  # what functions return


def _told_by_functions(trees: list[ast.Module]) -> _Told:
    """By name; of functions in several files that share a name none is known."""
    found: _Told = defaultdict(list)
    homes: dict[str, set[int]] = defaultdict(set)
    for home, tree in enumerate(trees):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns is not None and ast.unparse(node.returns) == "str":
                returns = (part.value for part in ast.walk(node) if isinstance(part, ast.Return))
                found[node.name] += filter(None, returns)
                homes[node.name].add(home)
    return {name: values for name, values in found.items() if len(homes[name]) == 1}


def _owners(call: ast.Call, names: set[str]) -> set[str]:
    """The classes that the text of a call belongs to."""
    called = ast.unparse(call.func)
    if called in _TELLERS:
        return _TELLERS[called]
    return {called} & names or {arg.id for arg in call.args if isinstance(arg, ast.Name) and arg.id in names}


def _is_given_to_base(call: ast.Call) -> bool:
    return ast.unparse(call.func) == "super().__init__"


def _named_values(scope: ast.AST) -> dict[str, ast.expr]:
    """Texts that have a name before they are raised: `text = f"..."`."""
    nodes = scope.body if isinstance(scope, ast.Module) else ast.walk(scope)
    assigned = [node for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1]
    return {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}


def _texts_of(call: ast.Call, values: dict[str, ast.expr], told: _Told) -> list[str]:
    """The first argument that is a message: a text, one that has a name, or one that a function tells."""
    for arg in [*call.args, *(keyword.value for keyword in call.keywords)]:
        value = values.get(arg.id, arg) if isinstance(arg, ast.Name) else arg
        texts = [text for given in told.get(_teller(value), [value]) if len(text := _template(given)) > _LEAST]
        if texts:
            return texts
    return []


def _teller(value: ast.expr) -> str:
    """The function that makes a text: `words`, `words(x)`, `self.words(x)`, `partial(words, x)`."""
    if isinstance(value, ast.Call):
        is_partial = isinstance(value.func, ast.Name) and value.func.id == "partial"
        return _teller(value.args[0] if is_partial else value.func)
    return value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")


def _template(node: ast.expr) -> str:
    """A text with `{...}` where a value is put in."""
    return re.sub(r"\s+", " ", _text(node)).replace("`", "'").strip()


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{...}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = _text(node.left), _text(node.right)
        return "".join(part or "{...}" for part in parts) if any(parts) else ""
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("'.join") and isinstance(node.args[0], ast.List):
        parts = [_text(line) for line in node.args[0].elts]
        return " ".join(part or "{...}" for part in parts) if any(parts) else ""
    if isinstance(node, ast.IfExp):
        return _text(node.body) or _text(node.orelse)
    return ""
