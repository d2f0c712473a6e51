"""The folder that `make` builds in, when the tree is another one than before."""
import shutil
import subprocess

import shop as shops

LIMIT_S = 10 * 60


def run(folder, *command):
    return subprocess.run(command, cwd=folder, check=True, timeout=LIMIT_S,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, encoding="utf-8").stdout


def test_a_tree_that_was_moved_is_set_up_anew(tmp_path):
    first, second = tmp_path / "a shop", tmp_path / "b"
    shutil.copytree(shops.ROOT, first, symlinks=True,
                    ignore=shutil.ignore_patterns(".git", "build*"))
    run(first, "tools/setup", "build")
    # What is there stays as it is.
    assert run(first, "tools/setup", "build") == ""
    first.rename(second)
    said = run(second, "tools/setup", "build")
    assert f"build was set up as {first}/build: it is set up anew" in said
    assert str(first) not in run(second, "ninja", "-C", "build", "-n", "-v")
    assert run(second, "tools/setup", "build") == ""
