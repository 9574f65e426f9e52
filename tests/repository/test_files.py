"""Rules of the repository that no other tool keeps: sizes, links, numbering, nothing of anyone's network."""

import ast
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 50
# What may be longer, with the reason. Anything that has become short again must leave the list.
LONG_FILES = {
    "agent/coldaisle/drivers/nvml_supervisor.py": "one state machine; split off are generation, health, prober, quarantine",
}
LONG_FUNCTIONS = {
    "tests/web/fake_agent.py:gpu": "one recorded answer, field by field",
}
# Locks and docs are read by people on other networks: no host that only one of them has, none that pip chooses anyway.
REGISTRY = re.compile(
    r"--(extra-)?index-url|--find-links|--trusted-host|files\.pythonhosted|\bpypi\.(org|python)|(artifactory|nexus|jfrog|devpi|mirror)s?\.",
    re.IGNORECASE,
)
# Looks for such options and names no host.
MAY_SPEAK_OF_REGISTRIES = {"tests/repository/test_files.py"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


NOT_OURS = re.compile(r"(^|/)(\.(?!ci/)|build/|dist/|__pycache__/)|\.egg-info/")


def tracked(*patterns):
    """Names of the repository's files that match a pattern; in an unpacked archive, of all that look like it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    return [
        name
        for name in names
        if name and not NOT_OURS.search(name) and any(fnmatch(name, pattern) for pattern in patterns)
        if (ROOT / name).is_file()
    ]


def test_files_are_short():
    """A Python file that outgrows 400 lines holds two subjects."""
    lengths = {name: (ROOT / name).read_text().count("\n") for name in tracked("*.py")}
    long = {name for name, lines in lengths.items() if lines > LINES_OF_A_FILE}
    assert {name: lengths[name] for name in long - LONG_FILES.keys()} == {}
    assert LONG_FILES.keys() - long == set(), "short again: take it off the list"


def test_functions_are_short():
    """A function that outgrows 50 lines does two things."""
    long = {}
    for name in tracked("*.py"):
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = node.end_lineno - node.lineno + 1
                if lines > LINES_OF_A_FUNCTION:
                    long[f"{name}:{node.name}"] = lines
    assert {name: lines for name, lines in long.items() if name not in LONG_FUNCTIONS} == {}
    assert LONG_FUNCTIONS.keys() - long.keys() == set(), "short again: take it off the list"


def test_packages_say_what_they_are():
    """Each package begins with a sentence that tells a newcomer what is in it."""
    silent = [
        name
        for name in tracked("agent/*__init__.py")
        if len(ast.get_docstring(ast.parse((ROOT / name).read_text())) or "") < 20
    ]
    assert silent == []


def test_no_host_of_a_registry():
    """No file names a package index: where packages come from is each site's own setting."""
    found = [
        f"{name}: {match[0]}"
        for name in tracked("*.txt", "*.toml", "*.md", "*.sh", "*.py", "Makefile", ".ci/*")
        if name not in MAY_SPEAK_OF_REGISTRIES
        if (match := REGISTRY.search((ROOT / name).read_text()))
    ]
    assert found == []


def test_locks_are_complete():
    """Each pinned package has hashes, each runtime dependency is pinned, and both locks agree."""
    pins = {}
    for name in ("lock", "dev-lock"):
        text = (ROOT / f"requirements/{name}.txt").read_text().replace("\\\n", " ")
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert [line for line in lines if "--hash=sha256:" not in line] == []
        pins[name] = {line.split("==")[0].strip(): line.split()[0] for line in lines}
    project = (ROOT / "pyproject.toml").read_text()
    declared = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)[1]
    names = {re.match(r"[\w.-]+", entry)[0].replace(".", "-") for entry in re.findall(r'"([^"]+)"', declared)}
    assert names - pins["lock"].keys() == set()
    assert {name: pin for name, pin in pins["lock"].items() if pins["dev-lock"].get(name) != pin} == {}


def test_decisions_are_numbered():
    """docs/adr/NNNN-title.md: numbered from 1 without a gap, the heading bears the number, the status is said."""
    records = sorted((ROOT / "docs/adr").glob("*.md"))
    assert [record.name[:4] for record in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    for record in records:
        assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", record.name), record.name
        text = record.read_text()
        assert text.startswith(f"# {record.name[:4]}. "), record.name
        assert re.search(r"^Status: (accepted|superseded by \d{4})", text, re.MULTILINE), record.name


def test_each_dependency_has_its_reason():
    """Each runtime dependency is named in a decision record, so that nobody has to guess what it is for."""
    project = (ROOT / "pyproject.toml").read_text()
    declared = re.search(r"^dependencies = \[(.*?)^\]", project, re.DOTALL | re.MULTILINE)[1]
    reasons = "".join(record.read_text() for record in (ROOT / "docs/adr").glob("*.md")).lower()
    names = [re.match(r"[\w.-]+", entry)[0] for entry in re.findall(r'"([^"]+)"', declared)]
    assert [name for name in names if name not in reasons] == []


def test_changelog_is_open():
    """CHANGELOG.md begins with what the next release brings."""
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"


def test_links_resolve():
    """Each relative link in a document leads to a file of the repository."""
    broken = []
    for name in tracked("*.md"):
        page = ROOT / name
        for target in LINK.findall(page.read_text()):
            if "://" not in target and not target.startswith(("#", "mailto:")):
                if not (page.parent / target.split("#")[0]).exists():
                    broken.append(f"{name}: {target}")
    assert broken == []


def test_documents_name_files_that_exist():
    """A path in backticks in a document is a file or folder of the repository, as the page was when it was written."""
    known = re.compile(r"`((?:agent|docs|tests|scripts|requirements|tools)/[\w./-]+)`")
    missing = [
        f"{name}: {path}"
        for name in tracked("*.md")
        for path in known.findall((ROOT / name).read_text())
        if not any(part.isupper() and len(part) > 1 for part in Path(path).stem.split("_"))
        if not (ROOT / path).exists()
    ]
    assert missing == []
