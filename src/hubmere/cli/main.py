"""The command line: `up`, `cert`, `sas`, `doctor`, `version`, and the commands in `commands`, loaded on first use.

Turns flags into calls and outcomes into exit codes (`exit_codes`); decides nothing itself. A failure is one or two
lines on standard error, never a traceback, unless `--log-level debug` asks for one. Imports stay light: each command
imports what it needs when it runs, so that `up` reaches its event loop without paying for the others.
"""

import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import typer

from hubmere import __version__
from hubmere.cli.exit_codes import Exit, end_with_code, fail
from hubmere.cli.lazy import LazyGroup
from hubmere.settings import SETTINGS, Setting, load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hubmere.model.security.connection_string import ConnectionString
    from hubmere.store.files import Files

T = TypeVar("T")

app = typer.Typer(
    name="hubmere",
    cls=LazyGroup,
    help="The open Event Hubs that runs anywhere: AMQP 1.0, Kafka and HTTPS over one durable log.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    # `-h` as in `az`; every command below inherits it.
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Ten years: longer than any key should be used.
_MAX_TTL_S = 10 * 365 * 24 * 3600

# Folder of the partition logs, below the data folder.
_LOGS = "log"
# Partitions that the doctor names of those that the next start recovers.
_MAX_UNRECOVERED = 20
# The ready file, which a running node writes there.
_READY_FILE = "ready.json"

_DataFolder = Annotated[
    Path | None, typer.Option("--data", metavar="PATH", help="Data folder of the node.", show_default="hubmere-data")
]


def main() -> NoReturn:
    """Run the command line; every end has a documented exit code."""
    end_with_code(app)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"hubmere {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    is_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


# --- up --------------------------------------------------------------------------------------------------------------


def _option(setting: Setting) -> inspect.Parameter:
    """The flag of a setting. Values stay text here: `settings` parses them, like those of other sources."""
    shown = f" Default: {setting.shown_default}." if setting.shown_default else ""
    flag = f"{setting.flag}/--no-{setting.flag[2:]}" if setting.kind.is_switch else setting.flag
    option = typer.Option(
        flag,
        help=setting.sentence + shown,
        metavar=setting.kind.metavar or None,
        rich_help_panel=setting.panel,
        show_default=False,
    )
    plain: Any = bool | None if setting.kind.is_switch else list[str] | None if setting.kind.is_list else str | None
    return inspect.Parameter(
        setting.field_name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[plain, option]
    )


def _up_parameters() -> Iterator[inspect.Parameter]:
    config = typer.Option(
        "--config", metavar="PATH", help="Settings in TOML, or the official emulator's Config.json.", show_default=False
    )
    yield inspect.Parameter(
        "config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, config]
    )
    yield from map(_option, SETTINGS)


def _up(**given: Any) -> None:
    """Start a node and serve until SIGTERM or SIGINT.

    Every setting also comes from a variable (HUBMERE_AMQP_PORT) or from a file (--config): a flag overrides the
    environment, the environment overrides the file, the file overrides the default.
    """
    settings = load({setting.key: given[setting.field_name] for setting in SETTINGS}, os.environ, given["config"])
    from hubmere.node.runtime.process import run

    run(settings)


_parameters = list(_up_parameters())
_up.__signature__ = inspect.Signature(_parameters)  # type: ignore[attr-defined]  # how a function states it at run time
_up.__annotations__ = {parameter.name: parameter.annotation for parameter in _parameters}
app.command("up")(_up)


# --- the others ------------------------------------------------------------------------------------------------------


@app.command()
def version() -> None:
    """Print the version."""
    print(f"hubmere {__version__}")


@app.command()
def cert(
    data: _DataFolder = None,
    ca: Annotated[bool, typer.Option("--ca", help="Show the private CA, and how to make clients trust it.")] = False,
) -> None:
    """Print the paths of the node's certificates."""
    from hubmere.store.secrets import NodeSecrets

    tls = NodeSecrets(_data_folder(data)).tls_files
    if not tls.ca.is_file():
        fail(Exit.FAILED, f"there is no CA at {tls.ca}; it is created when a node first starts on this data folder")
    path = tls.ca.resolve()
    if not ca:
        print(f"CA      {path}\nserver  {tls.certificate.resolve()}")
        return
    print(path)
    for client, command in _TRUST:
        print(f"\n# {client}\n{command.format(path=path)}")


_TRUST = (
    ("curl", "curl --cacert {path} https://localhost:5301/health"),
    ("Python: azure-eventhub", 'EventHubProducerClient.from_connection_string(..., connection_verify="{path}")'),
    ("Python: programs that use the ssl module's defaults", "export SSL_CERT_FILE={path}"),
    ("Python: requests", "export REQUESTS_CA_BUNDLE={path}"),
    ("librdkafka (confluent-kafka)", "ssl.ca.location={path}"),
    ("Node.js", "export NODE_EXTRA_CA_CERTS={path}"),
    ("Java", "keytool -importcert -noprompt -alias hubmere -file {path} -keystore hubmere.jks -storepass changeit"),
    ("Debian, Ubuntu", "sudo cp {path} /usr/local/share/ca-certificates/hubmere.crt && sudo update-ca-certificates"),
    ("Fedora, Red Hat", "sudo cp {path} /etc/pki/ca-trust/source/anchors/hubmere.pem && sudo update-ca-trust"),
    ("macOS", "sudo security add-trusted-cert -d -r trustRoot -k /Library/Keychains/System.keychain {path}"),
    ("Windows", "certutil -addstore -f Root {path}"),
)


@app.command()
def sas(
    connection_string: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Connection string to take host, rule, key and hub from.", show_default=False
        ),
    ] = None,
    rule: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the authorization rule.", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="TEXT", help="RuleKey of the rule.", show_default=False)] = None,
    scope: Annotated[
        str | None,
        typer.Option(
            metavar="URI", help="Scope of the token, with everything below it: sb://host/hub.", show_default=False
        ),
    ] = None,
    hub: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Hub of the token, instead of --scope.", show_default=False),
    ] = None,
    ttl: Annotated[int, typer.Option(metavar="SECONDS", min=1, max=_MAX_TTL_S, help="Lifetime of the token.")] = 3600,
) -> None:
    """Print a shared access signature: a token for a scope and a time, made from a connection string or a key."""
    from hubmere.model.clock import SystemClock
    from hubmere.model.security.sas import make_token

    uri, rule_name, rule_key = _signer(connection_string, rule, key, scope, hub)
    print(make_token(uri, rule_name, rule_key, expires_at_s=SystemClock().now_ms() // 1000 + ttl))


def _signer(
    connection_string: str | None, rule: str | None, key: str | None, scope: str | None, hub: str | None
) -> tuple[str, str, str]:
    """Scope, rule and key of a token: flags override the connection string."""
    if scope is not None and hub is not None:
        fail(Exit.USAGE, "give either --scope or --hub")
    if connection_string is not None:
        parsed = _parse_connection_string(connection_string)
        path = hub or parsed.entity_path or ""
        scope, rule, key = scope or f"sb://{parsed.host}/{path}", rule or parsed.key_name, key or parsed.key
    if scope is None or rule is None or key is None:
        fail(Exit.USAGE, "give --connection-string with a rule and its key, or --rule, --key and --scope")
    return scope, rule, key


def _parse_connection_string(connection_string: str) -> "ConnectionString":
    from hubmere.model.errors import InvalidArgument
    from hubmere.model.security.connection_string import ConnectionString

    try:
        return ConnectionString.parse(connection_string)
    except InvalidArgument as refusal:
        fail(Exit.USAGE, str(refusal))


@app.command()
def doctor(
    data: _DataFolder = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Truncate unacknowledged data, delete invalid indexes, skip batches that cannot be decoded.",
        ),
    ] = False,
    rebuild_catalog: Annotated[
        bool,
        typer.Option("--rebuild-catalog", help="Rebuild a lost or damaged catalog from its copy and the log folders."),
    ] = False,
    clients: Annotated[
        bool,
        typer.Option(
            "--clients", help="Instead, check on a running node whether clients can use the advertised addresses."
        ),
    ] = False,
    processors: Annotated[
        bool,
        typer.Option(
            "--processors", help="Instead, check the checkpoints and owners of event processors on a running node."
        ),
    ] = False,
    captured: Annotated[
        bool,
        typer.Option(
            "--captured", help="Instead, check on a running node the captured files of hubs with cold reads for gaps."
        ),
    ] = False,
    gateways: Annotated[
        bool,
        typer.Option("--gateways", help="Instead, check all gateways of a cluster, through the one of the ready file."),
    ] = False,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            "--ready-file",
            help="Ready file for --clients and --gateways. Default: the one in the data folder.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check a data folder while no node uses it: every batch, every index, the catalog.

    Nothing is changed without --repair, and a repair never deletes a readable event. --rebuild-catalog keeps the old
    catalog under another name.
    """
    from hubmere.store.files import acquire_lock

    if clients:
        _check_clients(ready_file or _data_folder(data) / _READY_FILE)
    if gateways:
        _check_gateways(ready_file or _data_folder(data) / _READY_FILE)
    folder = _data_folder(data)
    if processors:
        _check_processors(folder)
    if captured:
        _check_captured(folder)
    if not (folder / _LOGS).is_dir():
        fail(Exit.FAILED, f"{folder} is not the data folder of a node: it has no folder {_LOGS}")
    lock = acquire_lock(folder)
    try:
        if rebuild_catalog:
            _rebuild_catalog(folder)
        is_sound = _examine(folder, repair=repair)
    finally:
        lock.release()
    raise typer.Exit(Exit.OK if is_sound else Exit.DAMAGED)


def _check_clients(ready_file: Path) -> NoReturn:
    """Print for each advertised address whether this machine can use it, and end."""
    from hubmere.cli.advertised import check_addresses

    _print_checks(check_addresses(_read_ready_file(ready_file)))


def _read_ready_file(path: Path) -> "Mapping[str, str | None]":
    from hubmere.cli.advertised import read_ready_file

    try:
        return read_ready_file(path)
    except FileNotFoundError:
        fail(Exit.FAILED, f"{path} does not exist: start the node, or name its ready file by --ready-file")
    except (OSError, ValueError) as error:
        fail(Exit.FAILED, f"{path} cannot be read: {error}")


def _check_gateways(ready_file: Path) -> NoReturn:
    """Print for each gateway of a cluster what it does and whether something is wrong, and end."""
    from hubmere.cli.cluster.gateway_check import CheckFailed, check_gateways

    try:
        _print_checks(check_gateways(_read_ready_file(ready_file)))
    except CheckFailed as failed:
        fail(Exit.FAILED, str(failed))


def _check_processors(folder: Path) -> NoReturn:
    """Print for each partition of an event processor whether something is wrong, and end."""
    from hubmere.cli.processor_check import check_processors

    _print_checks(check_processors(folder), "no event processor has checkpoints or owners in this node")


def _check_captured(folder: Path) -> NoReturn:
    """Print for each partition with cold reads whether its captured files have a gap, and end."""
    from hubmere.cli.capture_check import check_captured

    _print_checks(check_captured(folder), "no hub with cold reads has captured files")


def _print_checks(checks: Iterable[tuple[str, str]], if_none: str = "nothing to check") -> NoReturn:
    """Print a line for each place and its problem, if any, and end."""
    places = problems = 0
    for place, problem in checks:
        places += 1
        problems += bool(problem)
        print(f"wrong    {place}: {problem}" if problem else f"checked  {place}")
    if not places:
        print(f"checked  {if_none}")
    raise typer.Exit(Exit.FAILED if problems else Exit.OK)


def _rebuild_catalog(folder: Path) -> None:
    from hubmere.model.clock import SystemClock
    from hubmere.store.catalog.guard import explain_damage
    from hubmere.store.catalog.rebuild import rebuild_catalog

    findings = explain_damage(folder)
    if not findings:
        print("kept     the catalog is sound: nothing to rebuild")
        return
    for finding in findings:
        print(f"damaged  {finding}")
    for line in rebuild_catalog(folder, SystemClock().now_ms()):
        print(f"rebuilt  {line}")


def _examine(folder: Path, *, repair: bool) -> bool:
    """Check, repair if requested, check again and print the result. Returns whether no problem is left."""
    from hubmere.store import doctor as logs
    from hubmere.store.catalog.guard import explain_damage

    if repair:
        for repaired in _with_progress("Repairing", folder, logs.repair):
            print(f"repaired {repaired}")
    report = _with_progress("Checking", folder, logs.check)
    complaints = explain_damage(folder)
    for line in [*complaints, *map(str, report.findings)]:
        print(f"damaged  {line}")
    print(f"checked  {report.batches} batches in {report.segments} files of {report.logs} partitions, and the catalog")
    if report.unrecovered:
        shown = ", ".join(report.unrecovered[:_MAX_UNRECOVERED])
        more = len(report.unrecovered) - _MAX_UNRECOVERED
        tail = f" and {more} more" if more > 0 else ""
        print(f"pending  the next start recovers {len(report.unrecovered)} partitions: {shown}{tail}")
    repairable = sum(finding.kind in logs.REPAIRABLE for finding in report.findings)
    if repairable:
        print(f"hint     --repair fixes {repairable} of these; none of them contains a readable event")
    if complaints:
        print("hint --rebuild-catalog rebuilds the catalog from its newest copy and the log folders")
    return report.is_sound and not complaints


def _with_progress(what: str, folder: Path, work: "Callable[[Path, Files, Callable[[str], None]], T]") -> T:
    """Run a function with a progress bar on standard error; without a terminal there is no bar."""
    from rich.console import Console
    from rich.progress import Progress

    from hubmere.store.files import Files

    console = Console(stderr=True)
    total = len(list((folder / _LOGS).iterdir()))
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        return work(folder, Files(), lambda _: bar.advance(task))


def _data_folder(data: Path | None) -> Path:
    """The data folder by the same rule as `up`: flag, then HUBMERE_DATA, then the default."""
    return load({"data": data}, os.environ).data
