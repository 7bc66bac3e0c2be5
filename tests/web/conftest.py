"""Real browsers for the page's tests, a stub server, and a page that is watched for errors."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from needs import command, missing
from real_server import Server
from stub_server import Stub
from talk_page import OUTPUT, TalkPage

HERE = Path(__file__).parent

CHROMIUM_ARGS = [
    "--use-fake-device-for-media-stream",
    "--disable-quic",
    "--disable-component-update",
    "--disable-background-networking",
]


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """What package.json names, installed."""
    command("npm")
    folder = HERE / "node_modules"
    if not (folder / "axe-core" / "axe.min.js").is_file():
        install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(install, cwd=HERE, check=False, timeout=600).returncode:
            missing("the packages of tests/web/package.json", "npm install in tests/web")
    return folder


@pytest.fixture(scope="session")
def launch() -> Iterator[Callable]:
    """Starts a Chromium with more arguments; all end with the session."""
    path = command("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browsers = []

        def start(*more: str):
            browser = playwright.chromium.launch(
                executable_path=path, headless=True, args=[*CHROMIUM_ARGS, *more], chromium_sandbox=False
            )
            browsers.append(browser)
            return browser

        yield start
        for browser in browsers:
            browser.close()


@pytest.fixture(scope="session")
def chromium(launch: Callable):
    return launch()


@pytest.fixture(scope="session")
def stub_process() -> Iterator[Stub]:
    stub = Stub()
    stub.start()
    yield stub
    stub.stop()


@pytest.fixture
def stub(stub_process: Stub) -> Stub:
    """The stub server with its script as at the start."""
    stub_process.clear()
    return stub_process


@pytest.fixture
def open_page(chromium) -> Iterator[Callable[..., TalkPage]]:
    """Opens the page at `url`. At the end it must have written no error and called no other host."""
    opened: list[TalkPage] = []

    def start(
        url: str,
        *,
        browser=None,
        permissions=("microphone", "camera"),
        stored=None,
        own_microphone=True,
        **options,
    ) -> TalkPage:
        context = (browser or chromium).new_context(
            permissions=list(permissions), accept_downloads=True, **options
        )
        page = TalkPage(context, url, stored, own_microphone)
        opened.append(page)
        return page

    yield start
    for page in opened:
        page.context.close()
        assert page.errors == []
        hosts = {urlsplit(url).netloc for url in page.requests if not url.startswith(("data:", "blob:"))}
        assert hosts <= {urlsplit(page.url).netloc}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A real server with the local pack."""
    running = Server()
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="session", autouse=True)
def fresh_output() -> None:
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
