"""`python -m load`: see `python -m load --help`."""

import argparse
import signal
import sys
from pathlib import Path

from load import page, report, scenario
from load.drift import GROWS
from load.ramp import Limits
from load.run import BUDGET_S, STEP_S, Plan, locust_page, ramp, soak
from load.trial import Target
from voice_app.errors import ConfigError, VoiceAppError

REPORT = Path(__file__).parent / "report"
JSON, PAGE, LOG = "report.json", "index.html", "server.log"


def main(argv: list[str]) -> int:
    """Run one command; gives the exit code: 1 if nothing held or something grows."""
    arguments = _parser().parse_args(argv)
    # A server of ours must not outlive us, however we are ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return arguments.run(arguments)
    except VoiceAppError as error:
        print(f"load {arguments.command}: {error.message}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("load: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m load", description="People who call a server, and what they met."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ramping = commands.add_parser("ramp", help="find the largest number of talks that holds")
    ramping.add_argument("--start", type=int, default=4, metavar="N", help="first number (default: 4)")
    ramping.add_argument("--most", type=int, default=64, metavar="N", help="largest number (default: 64)")
    ramping.add_argument("--step", type=float, default=STEP_S, metavar="S", help="seconds that one is held")
    ramping.add_argument(
        "--first-audio", type=float, default=1.0, metavar="S", help="limit of its p95 (default: 1 s)"
    )
    ramping.add_argument(
        "--budget", type=float, default=BUDGET_S, metavar="S", help="seconds until no other number is tried"
    )
    ramping.set_defaults(run=_ramp)
    soaking = commands.add_parser("soak", help="hold one number of talks and look for drift")
    soaking.add_argument("--sessions", type=int, default=4, metavar="N", help="talks at once (default: 4)")
    soaking.add_argument("--minutes", type=float, default=30.0, metavar="M", help="how long (default: 30)")
    soaking.set_defaults(run=_soak)
    browsing = commands.add_parser("ui", help="locust's own web page over the same callers")
    browsing.add_argument("--web-host", default="127.0.0.1", metavar="HOST")
    browsing.add_argument("--web-port", type=int, default=8089, metavar="PORT")
    browsing.set_defaults(run=_ui)
    for command in (ramping, soaking, browsing):
        command.add_argument("--scenario", type=Path, default=scenario.PEOPLE, metavar="FILE")
        command.add_argument(
            "--null-pipeline", action="store_true", help="load the front end alone: answers cost nothing"
        )
        command.add_argument("--url", help="a server that runs already: ws://HOST:PORT/v1/realtime")
        command.add_argument("--out", type=Path, default=REPORT, metavar="DIR", help="where the report goes")
    drawing = commands.add_parser("draw", help="draw a report.json again")
    drawing.add_argument("file", type=Path, metavar="FILE")
    drawing.set_defaults(run=_draw)
    return parser


def _ramp(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.start <= arguments.most:
        raise ConfigError(f"--start {arguments.start}: must be between 1 and --most", param="start")
    _positive(arguments, "step", "first_audio", "budget")
    plan = _plan(arguments, arguments.most, Limits(arguments.first_audio))
    done = ramp(plan, arguments.start, arguments.most, arguments.step, arguments.budget)
    _write(done, arguments.out)
    if done.answer is None or not done.answer.sessions:
        print("▸ not even the smallest number held")
        return 1
    note = f" ({done.answer.note})" if done.answer.note else ""
    print(f"▸ {done.answer.sessions} talks at once{note}")
    return 0


def _soak(arguments: argparse.Namespace) -> int:
    if arguments.sessions < 1:
        raise ConfigError(f"--sessions {arguments.sessions}: must be at least 1", param="sessions")
    _positive(arguments, "minutes")
    done = soak(_plan(arguments, arguments.sessions), arguments.sessions, arguments.minutes)
    _write(done, arguments.out)
    for found in done.drifts:
        change = f"{found.change:+.2f} ± {found.margin:.2f} over the run, scatter {found.scatter:.2f}"
        print(f"  {found.name}: {found.level:.1f} {found.unit}, {change}: {found.verdict}")
    for what, unit in (("p95 of first audio", "ms"), ("memory", "MB")):
        if not any(found.unit == unit for found in done.drifts):
            print(f"  {what}: too short a run to tell whether it drifts")
    return 1 if any(found.verdict == GROWS for found in done.drifts) else 0


def _ui(arguments: argparse.Namespace) -> int:
    locust_page(_plan(arguments, 1000), arguments.web_host, arguments.web_port)
    return 0


def _draw(arguments: argparse.Namespace) -> int:
    done = report.read(arguments.file)
    target = arguments.file.with_name(PAGE)
    target.write_text(page.html(done))
    print(f"▸ {target}")
    return 0


def _plan(arguments: argparse.Namespace, max_talks: int, limits: Limits | None = None) -> Plan:
    arguments.out.mkdir(parents=True, exist_ok=True)
    target = Target(arguments.null_pipeline, arguments.url, arguments.out / LOG, max_talks)
    return Plan(arguments.scenario, target, limits or Limits(), lambda line: print(line, flush=True))


def _positive(arguments: argparse.Namespace, *names: str) -> None:
    for name in names:
        if vars(arguments)[name] <= 0:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} {vars(arguments)[name]:g}: must be above 0", param=name)


def _write(done: report.Report, folder: Path) -> None:
    report.write(done, folder / JSON)
    (folder / PAGE).write_text(page.html(done))
    print(f"▸ {folder / PAGE}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
