"""YAML 1.2 text to plain values, with the line of every key: what errors are pointed at.

The node tree is walked here instead of leaving it to ruamel's constructor, so that all duplicate keys are found and
not only the first, and so that nothing but the plain types can come out of a file.
"""

from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import Node, ScalarNode, SequenceNode

Path = tuple[str | int, ...]

# A configuration has some dozens of keys; a file with more nodes than this is another file, or an alias bomb.
_MOST_NODES = 20_000
_PLAIN_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "str", "map", "seq")}


class Problem(NamedTuple):
    """Something wrong at a line (from 1); `line` 0 means the file as a whole."""

    line: int
    message: str


class Document(NamedTuple):
    """A parsed file. `lines` has the line of each key or item by its path, `()` the document's own."""

    value: Any
    lines: dict[Path, int]
    problems: list[Problem]

    def line(self, path: Path) -> int:
        """Return the line of `path`, or of the closest part of it that the file has."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)


class _TooMuchError(Exception):
    pass


class _Walk:
    def __init__(self, yaml: YAML) -> None:
        self._constructor = yaml.constructor
        self.lines: dict[Path, int] = {}
        self.problems: list[Problem] = []
        self._open: set[int] = set()
        self._nodes = 0

    def value(self, node: Node, path: Path) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise _TooMuchError
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        if str(node.tag) not in _PLAIN_TAGS:
            self.problems.append(Problem(line, f"the tag {_short_tag(node)} is not allowed: remove it"))
            return None
        if id(node) in self._open:
            self.problems.append(Problem(line, "an alias contains itself: write the value out"))
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, ScalarNode):
                return self._scalar(node, line)
            if isinstance(node, SequenceNode):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _scalar(self, node: ScalarNode, line: int) -> Any:
        try:
            return self._constructor.construct_object(node)
        except (ValueError, OverflowError, YAMLError):
            self.problems.append(Problem(line, f'"{node.value[:40]}" cannot be read as a value: put it in quotes'))
            return None

    def _mapping(self, node: Node, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self.problems.append(Problem(line, "a key must be a word, not a list or mapping"))
                continue
            key = key_node.value
            if key in found:
                first = self.lines[(*path, key)]
                dotted = ".".join(map(str, (*path, key)))
                self.problems.append(Problem(line, f'"{dotted}" is already set in line {first}: remove one of the two'))
                continue
            self.lines[(*path, key)] = line
            found[key] = self.value(value_node, (*path, key))
        return found


def _short_tag(node: Node) -> str:
    return str(node.tag).replace("tag:yaml.org,2002:", "!!")


def _syntax_problem(error: YAMLError) -> Problem:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        what = " ".join(str(part) for part in (error.context, error.problem) if part)
        if error.problem_mark and error.context_mark and error.context_mark.line != error.problem_mark.line:
            what += f" (begun in line {error.context_mark.line + 1})"
        if "'\\t'" in what:
            what += ": indent with spaces, not tabs"
        return Problem(mark.line + 1 if mark else 1, f"is not valid YAML: {what}".replace("\n", " "))
    return Problem(1, f"is not valid YAML: {' '.join(str(error).split())}")


def parse(text: str) -> Document:
    """Parse YAML 1.2 text; never raises, `problems` says what is wrong with it as YAML.

    An empty document gives None. What is found besides the problems is still returned, so that the caller can go on
    and report everything at once; after a syntax error the value is None.
    """
    yaml = YAML(typ="safe", pure=True)
    walk = _Walk(yaml)
    try:
        nodes = list(yaml.compose_all(text))
        if len(nodes) > 1:
            line = nodes[1].start_mark.line + 1
            return Document(None, {}, [Problem(line, 'holds a second document: remove everything from "---" on')])
        value = walk.value(nodes[0], ()) if nodes else None
    except YAMLError as error:
        return Document(None, {}, [_syntax_problem(error)])
    except (_TooMuchError, RecursionError):
        return Document(
            None, {}, [Problem(1, "has far more entries than a configuration can need: is it the right file?")]
        )
    return Document(value, walk.lines, walk.problems)
