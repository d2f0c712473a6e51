"""What completes the command line in a shell, made from the program's help."""
import os
import re
import shutil
import subprocess

import pytest

import shop as shops

TOOL = shops.ROOT / "tools/completions"
CONFIG = """\
databases: {default: 'sqlite:///shop.db'}
transports:
    outbox: {dsn: 'doctrine://default?table_name=messenger_outbox', relay_to: orders}
    orders: 'queue://default?queue_name=orders'
"""
# What is typed, and what it may become.
TYPED = [
    (["re"], {"relay"}),
    (["setup-"], {"setup-deduplication", "setup-amqp"}),
    (["failed", ""], {"show", "retry", "remove"}),
    (["failed", "re"], {"retry", "remove"}),
    (["config", ""], {"check", "show", "keys"}),
    (["relay", "--st"], {"--stop-when-empty", "--stop-timeout"}),
    (["failed", "show", "--st"], {"--stats"}),
    (["publish", "--he"], {"--header", "--help"}),
    (["relay", ""], {"outbox", "orders"}),
    (["-v", "consume", "or"], {"orders"}),
]
TRY_BASH = """\
. ./completions
COMP_WORDS=(skirnir "$@")
COMP_CWORD=$#
_skirnir
printf '%s\\n' "${COMPREPLY[@]}"
"""


def made_for(shell, folder):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "skirnir.yaml").write_text(CONFIG)
    (folder / "completions").write_text(subprocess.run(
        [TOOL, shell, shops.PROGRAM], check=True, capture_output=True,
        text=True).stdout)
    return folder


@pytest.fixture(params=["bash", "zsh", "fish"])
def made(request, tmp_path):
    return request.param, made_for(request.param, tmp_path)


def run(folder, *command):
    path = f"{os.path.dirname(shops.PROGRAM)}:{os.environ['PATH']}"
    result = subprocess.run(command, text=True, capture_output=True,
                            cwd=folder, timeout=shops.PATIENCE_S,
                            env={"PATH": path, "HOME": str(folder)})
    assert result.returncode == 0 and result.stderr == "", result.stderr
    return result.stdout


def test_the_shell_understands_them(made):
    shell, folder = made
    run(folder, shell, "-n", "completions")


def test_every_command_and_option_of_the_help_is_there(made):
    _, folder = made
    text = (folder / "completions").read_text()
    listed = run(folder, "skirnir", "--help").partition("Commands:\n")[2]
    commands = re.findall(r"^  (\S+(?: \S+)?)  ", listed.partition("\n\n")[0],
                          re.M)
    assert len(commands) > 10
    for command in commands:
        assert command.split()[-1] in text
        said = run(folder, "skirnir", *command.split(), "--help")
        for option in re.findall(r"^  (?:-\w,|   ) --([\w-]+)", said, re.M):
            assert re.search(rf"(--|-l ){option}\b", text), option


@pytest.mark.parametrize("typed, wanted", TYPED,
                         ids=[" ".join(typed) for typed, _ in TYPED])
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_what_is_typed_is_completed(tmp_path, shell, typed, wanted):
    folder = made_for(shell, tmp_path)
    command = ["-c", TRY_BASH, "bash", *typed] if shell == "bash" else \
        ["-c", f". ./completions; complete -C '{' '.join(['skirnir', *typed])}'"]
    said = run(folder, shell, *command)
    assert {line.partition("\t")[0].rstrip("=")
            for line in said.splitlines()} == wanted


def test_bash_completes_the_words_that_an_option_takes(tmp_path):
    said = run(made_for("bash", tmp_path), "bash", "-c", TRY_BASH, "bash",
               "relay", "--log-format", "=", "")
    assert said.split() == ["text", "json"]


def test_a_shell_that_is_not_known_is_refused():
    result = subprocess.run([TOOL, "tcsh", shops.PROGRAM], text=True,
                            capture_output=True)
    assert result.returncode == 2
    assert "bash|zsh|fish" in result.stderr
