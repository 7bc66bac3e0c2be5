"""The page's types, and its pure parts under node."""

import subprocess
from pathlib import Path

import pytest
from needs import command

HERE = Path(__file__).parent


@pytest.mark.parametrize("project", ["page", "worklet"])
def test_tsc_finds_nothing(node_modules, project):
    compiler = node_modules / ".bin" / "tsc"
    done = subprocess.run(
        [compiler, "-p", f"tsconfig.{project}.json"], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == 0


def test_pure_parts():
    node = command("node", "nodejs")
    done = subprocess.run(
        [node, "--test", *map(str, sorted((HERE / "pure").glob("*.mjs")))],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
