"""Settings: one order of precedence, and all invalid settings are reported together."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hubmere.model.addresses import AdvertisedListener
from hubmere.settings import SETTINGS, BadSettings, HubSetting, Problem, Setting, Settings, load
from hubmere.settings.tree import BY_KEY

# For each setting one value that is not its default, as text and as the parsed value.
SAMPLES: dict[str, tuple[str, object]] = {
    "local_identity": ("true", True),
    "store": ("local", "local"),
    "cluster_kafka": ("b1:9092,b2:9093", (("b1", 9092), ("b2", 9093))),
    "cluster_secret_file": (__file__, Path(__file__)),
    "cluster_prefix": ("events.", "events."),
    "cluster_replication": ("5", 5),
    "cluster_min_insync": ("3", 3),
    "cluster_unsafe": ("true", True),
    "cluster_sasl": ("plain", "plain"),
    "cluster_sasl_user": ("gateway", "gateway"),
    "cluster_sasl_password_file": (__file__, Path(__file__)),
    "cluster_tls": ("true", True),
    "cluster_tls_ca": ("ca.pem", Path("ca.pem")),
    "start_timeout": ("60", 60.0),
    "token_algorithms": ("RS256,ES256", ("RS256", "ES256")),
    "data": ("/srv/events", Path("/srv/events")),
    "namespace": ("contoso", "contoso"),
    "hostname": ("a.example.org,192.0.2.1,*.example", ("a.example.org", "192.0.2.1", "*.example")),
    "advertised_listeners": (
        "kafka://a.example:19092,amqps://[2001:db8::1]",
        (AdvertisedListener("kafka", "a.example", 19092), AdvertisedListener("amqps", "2001:db8::1")),
    ),
    "memory": ("true", True),
    "ready_file": ("ready.json", Path("ready.json")),
    "shutdown_timeout_s": ("2.5", 2.5),
    "host": ("0.0.0.0", "0.0.0.0"),
    "amqp_port": ("0", 0),
    "amqps_port": ("off", None),
    "kafka_port": ("19092", 19092),
    "kafkas_port": ("off", None),
    "http_port": ("8080", 8080),
    "https_port": ("8443", 8443),
    "max_connections": ("7", 7),
    "protocol_connections_percent": ("50", 50),
    "address_connections_percent": ("20", 20),
    "handshake_timeout_s": ("5", 5.0),
    "amqp_idle_timeout_s": ("60", 60.0),
    "kafka_idle_timeout_s": ("60", 60.0),
    "group_consumer_session_timeout_s": ("60", 60.0),
    "group_consumer_heartbeat_interval_s": ("0.5", 0.5),
    "group_consumer_max_size": ("100", 100),
    "http_body_bytes": ("2 MiB", 2 * 1024 * 1024),
    "memory_budget_bytes": ("64 MiB", 64 * 1024 * 1024),
    "tls_certificate": ("own.pem", Path("own.pem")),
    "tls_key": ("own-key.pem", Path("own-key.pem")),
    "tls_client_ca": ("clients.pem", Path("clients.pem")),
    "durability": ("os", "os"),
    "segment_bytes": ("1GiB", 1024**3),
    "retention_check_interval_s": ("10", 10.0),
    "clock_confirm_s": ("60", 60.0),
    "disk_warn_percent": ("20", 20),
    "disk_reserve_bytes": ("1GiB", 1024**3),
    "as": ("premium", "premium"),
    "deflate_after_s": ("30", 30.0),
    "blobs": ("off", False),
    "blob_account": ("mystorage1", "mystorage1"),
    "blob_development_account": ("true", True),
    "blob_max_bytes": ("64 MiB", 64 * 1024 * 1024),
    "auto_create_hubs": ("no", False),
    "default_partition_count": ("8", 8),
    "clock_skew_s": ("300", 300),
    "rotated_key_grace_s": ("60", 60),
    "capture_supervise": ("no", False),
    "capture_master": ("spark://cluster:7077", "spark://cluster:7077"),
    "capture_sleep_after_s": ("300", 300),
    "capture_heap_mb": ("1024", 1024),
    "capture_java": ("/opt/java", Path("/opt/java")),
    "capture_folder": ("/srv/files", Path("/srv/files")),
    "capture_checkpoint_dir": ("/srv/checkpoints", Path("/srv/checkpoints")),
    "capture_account_folders": ("yes", True),
    "capture_hold_retention": ("no", False),
    "capture_hold_bytes": ("1 GiB", 1024**3),
    "log_format": ("json", "json"),
    "log_level": ("debug", "debug"),
    "audit_log": ("false", False),
    "audit_log_bytes": ("1 MiB", 1024 * 1024),
    "otlp_endpoint": ("http://localhost:4318", "http://localhost:4318"),
}

BAD: list[tuple[str, object]] = [
    ("data", "  "),
    ("data", "~nobody-of-that-name/data"),
    ("namespace", "x"),
    ("namespace", "-hubmere"),
    ("hostname", "not a name"),
    ("hostname", 7),
    ("advertised_listeners", "localhost:9092"),
    ("advertised_listeners", "mqtt://localhost:1883"),
    ("advertised_listeners", "kafka://localhost:99999"),
    ("advertised_listeners", "kafka://localhost/path"),
    ("advertised_listeners", "kafka://0.0.0.0:9092"),
    ("advertised_listeners", "https://[::]"),
    ("advertised_listeners", "kafka://a:1,kafka://b:2"),
    ("memory", "perhaps"),
    ("memory", 2),
    ("shutdown_timeout_s", "nan"),
    ("shutdown_timeout_s", True),
    ("host", "a..b"),
    ("host", "x" * 64),
    ("amqp_port", "65536"),
    ("amqp_port", "-1"),
    ("amqp_port", "on"),
    ("amqp_port", True),
    ("amqp_port", 5672.0),
    ("max_connections", "0"),
    ("protocol_connections_percent", "0"),
    ("address_connections_percent", "101"),
    ("http_body_bytes", "1 MB"),
    ("http_body_bytes", "1"),
    ("segment_bytes", -1),
    ("durability", "never"),
    ("as", "gold"),
    ("log_level", "loud"),
]


def problems_of(**sources: object) -> tuple[Problem, ...]:
    with pytest.raises(BadSettings) as refusal:
        load(**{"flags": {}, "environ": {}, **sources})  # type: ignore[arg-type]
    return refusal.value.problems


def a_file(folder: Path, text: str, name: str = "hubmere.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def with_partner(key: str, values: dict[str, str]) -> dict[str, str]:
    """Certificate and key must be given together; settings of a cluster need others."""
    pair = {"tls_certificate": "tls_key", "tls_key": "tls_certificate"}
    if key.startswith("cluster_") or key == "start_timeout":
        # The settings that a gateway needs.
        needed = ("cluster_kafka", "cluster_secret_file", "cluster_sasl_password_file")
        return {**{name: SAMPLES[name][0] for name in needed}, "store": "cluster", **values}
    return {**values, pair[key]: SAMPLES[pair[key]][0]} if key in pair else values


def test_every_setting_has_a_sample_here() -> None:
    """A setting without a sample would not be tested."""
    assert set(SAMPLES) == set(BY_KEY)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.key)
def test_every_setting_has_a_sentence_and_a_default_that_it_would_accept(setting: Setting) -> None:
    """A user must be able to enter the shown default."""
    shown = setting.shown_default

    assert setting.sentence.endswith(".")
    assert setting.sentence[0].isupper()
    assert not shown or setting.kind.read(shown) == setting.default


@pytest.mark.parametrize("key", SAMPLES)
def test_every_setting_comes_from_flag_environment_and_file(tmp_path: Path, key: str) -> None:
    """The same rule applies to all settings."""
    text, value = SAMPLES[key]
    given = with_partner(key, {key: text})
    config = a_file(tmp_path, "".join(f"{name} = {json.dumps(raw)}\n" for name, raw in given.items()))
    variables = {BY_KEY[name].variable: raw for name, raw in given.items()}

    loaded = [load(given, {}), load({}, variables), load({}, {}, config), load({}, {"HUBMERE_CONFIG": str(config)})]

    assert [getattr(settings, BY_KEY[key].field_name) for settings in loaded] == [value] * 4


def test_flag_overrides_environment_overrides_file_overrides_default(tmp_path: Path) -> None:
    """This is the only order of precedence."""
    config = a_file(tmp_path, "amqp_port = 1\nkafka_port = 1001\nhttp_port = 2001\n")
    environ = {"HUBMERE_AMQP_PORT": "2", "HUBMERE_KAFKA_PORT": "1002"}

    settings = load({"amqp_port": "3", "http_port": None, "hostname": []}, environ, config)

    assert (settings.amqp_port, settings.kafka_port, settings.http_port) == (3, 1002, 2001)
    assert settings.https_port == Settings().https_port
    assert settings.hostname == ()


def test_bad_value_that_is_overridden_is_not_reported() -> None:
    """Only the value that is used can be wrong."""
    settings = load({"amqp_port": "5"}, {"HUBMERE_AMQP_PORT": "many"})

    assert settings.amqp_port == 5


@pytest.mark.parametrize(("key", "value"), BAD, ids=lambda part: str(part))
def test_invalid_setting_is_reported_with_origin_value_and_allowed_values(key: str, value: object) -> None:
    """A user must be able to correct it without the manual."""
    (problem,) = problems_of(flags={key: value})

    assert problem == Problem(
        setting=key, origin=f"flag {BY_KEY[key].flag}", value=value, allowed=BY_KEY[key].kind.allowed
    )
    assert all(part in str(problem) for part in (key, BY_KEY[key].flag, repr(value), problem.allowed))


def test_all_invalid_settings_are_reported_together(tmp_path: Path) -> None:
    """A user must not have to correct them one start at a time."""
    config = a_file(
        tmp_path, 'durability = "never"\nspeed = 3\n[limits]\nhubs_per_namespac = 4\n[[hubs]]\npartitions = 1\n'
    )

    problems = problems_of(flags={"amqp_port": "x"}, environ={"HUBMERE_LOG_FORMAT": "xml"}, config=config)

    assert {problem.setting: problem.origin.split(" ")[0] for problem in problems} == {
        "durability": "file",
        "speed": "file",
        "limits.hubs_per_namespac": "file",
        "hubs[1]": "file",
        "amqp_port": "flag",
        "log_format": "environment",
    }


def test_unknown_key_in_a_file_gets_a_hint(tmp_path: Path) -> None:
    """A misspelt key must not be ignored."""
    (problem,) = problems_of(config=a_file(tmp_path, "amqp_prt = 1\n"))

    assert "did you mean amqp_port?" in problem.allowed


def test_unknown_variable_is_ignored() -> None:
    """Container platforms set such names for a service called hubmere."""
    settings = load({}, {"HUBMERE_SERVICE_HOST": "10.0.0.1", "HUBMERE_PORT": "tcp://10.0.0.1:5672", "HUBMERE_DATA": ""})

    assert settings == Settings()


@pytest.mark.parametrize(
    ("name", "text"),
    [("hubmere.toml", "data = "), ("Config.json", "{"), ("Config.json", "[]"), ("hubmere.toml", "{} = 1")],
)
def test_file_that_cannot_be_parsed_is_one_problem(tmp_path: Path, name: str, text: str) -> None:
    """The error names the position in the file, and no consequential errors."""
    problems = problems_of(config=a_file(tmp_path, text, name))

    assert len(problems) == 1


def test_missing_file_is_reported(tmp_path: Path) -> None:
    """The error says whether the name comes from a flag or a variable."""
    missing = tmp_path / "none.toml"

    (by_flag,) = problems_of(config=missing)
    (by_variable,) = problems_of(environ={"HUBMERE_CONFIG": str(missing)})

    assert by_flag.origin == "flag --config"
    assert by_variable.origin == "environment variable HUBMERE_CONFIG"
    assert str(missing) in str(by_flag)


def test_address_of_a_listener_that_is_off_is_refused() -> None:
    """Clients would never be told the address; the error names the setting that turns the listener on."""
    flags = {"advertised_listeners": ["kafka://localhost:19092", "amqp://localhost"], "kafka_port": "off"}

    (problem,) = problems_of(flags=flags)

    assert (problem.setting, problem.value) == ("advertised_listeners", "kafka")
    assert problem.allowed == "listeners that are on; kafka_port is off"


def test_certificate_without_key_is_refused() -> None:
    """The opposite is refused too; the error names the missing setting and the reason."""
    (no_key,) = problems_of(flags={"tls_certificate": "a.pem"})
    (no_certificate,) = problems_of(environ={"HUBMERE_TLS_KEY": "a.pem"})

    assert (no_key.setting, no_certificate.setting) == ("tls_key", "tls_certificate")
    assert "HUBMERE_TLS_KEY" in str(no_certificate)


@pytest.mark.parametrize(
    ("flags", "blamed"),
    [
        ({"group_consumer_heartbeat_interval_s": 50}, "group_consumer_heartbeat_interval_s"),
        ({"group_consumer_session_timeout_s": 4}, "group_consumer_session_timeout_s"),
    ],
)
def test_heartbeat_interval_longer_than_the_session_is_refused(flags: dict[str, object], blamed: str) -> None:
    """Every member would be removed between two heartbeats; the setting that was given is named."""
    (problem,) = problems_of(flags=flags)

    assert (problem.setting, problem.value) == (blamed, float(str(flags[blamed])))


def test_two_services_on_one_port_are_refused_and_port_zero_is_not() -> None:
    """Port 0 is a different port each time."""
    (clash,) = problems_of(flags={"kafka_port": "5672"})
    settings = load({"kafka_port": "0", "amqp_port": "0", "http_port": "off", "https_port": "off"}, {})

    assert clash.setting == "kafka_port"
    assert "amqp_port" in clash.allowed
    assert (settings.kafka_port, settings.amqp_port, settings.http_port) == (0, 0, None)


def test_limits_come_from_file_and_environment(tmp_path: Path) -> None:
    """Every number of a tier can be replaced."""
    config = a_file(tmp_path, '[limits]\nhubs_per_namespace = 50\npartitions_per_hub = "unlimited"\n')

    settings = load({}, {"HUBMERE_LIMITS_HUBS_PER_NAMESPACE": "60", "HUBMERE_LIMITS_CONNECTIONS": "9"}, config)

    assert settings.limits == {"hubs_per_namespace": "60", "partitions_per_hub": "unlimited", "connections": "9"}


@pytest.mark.parametrize("limits", ["3", "[3]", '{ hubs_per_namespace = "many" }', "{ hubs_per_namespace = 1.5 }"])
def test_bad_limits_are_refused(tmp_path: Path, limits: str) -> None:
    """They are checked by the table of tiers, together with all other settings."""
    (problem,) = problems_of(config=a_file(tmp_path, f"limits = {limits}\n"))

    assert problem.setting.startswith("limits")


def test_hubs_of_a_file_become_hub_settings(tmp_path: Path) -> None:
    """A file can describe the hubs that a test or a demo needs."""
    config = a_file(
        tmp_path,
        '[[hubs]]\nname = "orders"\npartitions = 8\ngroups = ["billing", "audit"]\nretention_hours = 24\n'
        '[[hubs]]\nname = "clicks"\nnamespace = "contoso"\n',
    )

    settings = load({}, {}, config)

    assert settings.hubs == (
        HubSetting(name="orders", partition_count=8, consumer_groups=("billing", "audit"), retention_hours=24),
        HubSetting(name="clicks", namespace="contoso"),
    )


@pytest.mark.parametrize(
    ("hubs", "place"),
    [
        ("hubs = 3", "hubs"),
        ('hubs = ["orders"]', "hubs[1]"),
        ("[[hubs]]\npartitions = 1", "hubs[1]"),
        ('[[hubs]]\nname = "a b"', "hubs[1].name"),
        ('[[hubs]]\nname = "a"\n[[hubs]]\nname = "b"\npartitions = 0', "hubs[2].partitions"),
        ('[[hubs]]\nname = "a"\npartition = 1', "hubs[1].partition"),
        ('[[hubs]]\nname = "a"\ngroups = "b c"', "hubs[1].groups"),
    ],
)
def test_invalid_hub_is_reported_by_its_position(tmp_path: Path, hubs: str, place: str) -> None:
    """In a file with twenty hubs the error must name the hub."""
    (problem,) = problems_of(config=a_file(tmp_path, hubs))

    assert problem.setting == place


EMULATOR = {
    "UserConfig": {
        "NamespaceConfig": [
            {
                "Type": "EventHub",
                "Name": "emulatorNs1",
                "Entities": [{"Name": "eh1", "PartitionCount": "2", "ConsumerGroups": [{"Name": "cg1"}]}],
            }
        ],
        "LoggingConfig": {"Type": "File"},
    }
}


@pytest.mark.parametrize("name", ["Config.json", "settings.conf"])
def test_configuration_of_the_official_emulator_is_accepted_unchanged(tmp_path: Path, name: str) -> None:
    """Recognized by its content as well as by its name; the node then accepts the emulator's key."""
    settings = load({}, {}, a_file(tmp_path, json.dumps(EMULATOR), name))

    assert settings.is_emulator
    assert settings.namespace == "emulatorNs1"
    assert settings.hubs == (
        HubSetting(name="eh1", namespace="emulatorNs1", partition_count=2, consumer_groups=("cg1",)),
    )


def test_error_in_the_emulators_file_is_reported_by_its_path(tmp_path: Path) -> None:
    """Its users need clear error messages."""
    text = json.dumps(EMULATOR).replace('"PartitionCount": "2"', '"PartitionCount": "two"')

    (problem,) = problems_of(config=a_file(tmp_path, text, "Config.json"))

    assert problem.setting == "UserConfig.NamespaceConfig[0].Entities[0]('eh1').PartitionCount"
    assert problem.value == "two"


def test_environment_and_flags_override_the_emulators_file(tmp_path: Path) -> None:
    """The file lists the hubs; flags may still set address and names."""
    config = a_file(tmp_path, json.dumps(EMULATOR), "Config.json")

    settings = load({"namespace": "contoso"}, {"HUBMERE_AMQP_PORT": "0"}, config)

    assert (settings.namespace, settings.amqp_port) == ("contoso", 0)


@given(st.dictionaries(st.sampled_from(sorted(BY_KEY)), st.text(max_size=12), max_size=6))
def test_any_text_gives_settings_or_problems(flags: dict[str, str]) -> None:
    """No text causes another exception."""
    ports = {key for key in BY_KEY if key.endswith("_port")}  # a given value may contradict a default

    blamed = {problem.setting for problem in _problems_or_none(flags)}

    assert blamed <= {*flags, "tls_key", "tls_certificate", *ports}


def _problems_or_none(flags: dict[str, str]) -> tuple[Problem, ...]:
    try:
        load(flags, {})
    except BadSettings as bad:
        return bad.problems
    return ()


# --- places of captured files ----------------------------------------------------------------------------------------

TARGETS = """
[capture]
master = "local[4,4]"
hold_retention = false

[capture.targets.lake]
url = "az://account"
account_key_file = "{key_file}"
endpoint = "http://127.0.0.1:10000/account"

[capture.targets.my-bucket]
url = "s3://bucket/events"
access_key_id = "id"
secret_access_key = "from the file"
"""


def a_file_of_targets(folder: Path) -> Path:
    key_file = folder / "key"
    key_file.write_text("a-key\n", encoding="utf-8")
    config = folder / "hubmere.toml"
    config.write_text(TARGETS.format(key_file=key_file), encoding="utf-8")
    return config


def test_table_capture_has_settings_and_targets(tmp_path: Path) -> None:
    """The table has the settings whose names begin with `capture`; secrets may be in separate files."""
    settings = load({}, {}, a_file_of_targets(tmp_path))

    assert (settings.capture_master, settings.capture_hold_retention) == ("local[4,4]", False)
    lake = settings.capture_targets["lake"]
    assert lake.url == "az://account"
    assert lake.options == {"account_key": "a-key", "endpoint": "http://127.0.0.1:10000/account"}


def test_variables_override_the_keys_of_a_target_and_can_define_one(tmp_path: Path) -> None:
    """Containers get their secrets in this way."""
    environ = {
        "HUBMERE_CAPTURE_TARGETS_MY_BUCKET_SECRET_ACCESS_KEY": "from the environment",
        "HUBMERE_CAPTURE_TARGETS_LAKE_ACCOUNT_KEY": "another",
        "HUBMERE_CAPTURE_TARGETS_DEFAULT_URL": "/srv/files",
        "HUBMERE_CAPTURE_TARGETS_DEFAULT_COLOUR": "ignored",
    }

    targets = load({}, environ, a_file_of_targets(tmp_path)).capture_targets

    assert targets["my-bucket"].options["secret_access_key"] == "from the environment"
    assert targets["lake"].options["account_key"] == "another"
    assert targets["default"].url == "file:///srv/files"


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("capture = 1", "capture"),
        ("[capture]\ntargets = 1", "capture.targets"),
        ("[capture.targets]\nlake = 1", "capture.targets"),
        ("[capture.targets.lake]\naccount_key = 'top-secret'", "capture.targets.lake.url"),
        ("[capture.targets.lake]\nurl = 'https://account/'", "capture.targets.lake.url"),
        ("[capture.targets.lake]\nurl = 's3://b'\naccount = 'top-secret'", "capture.targets.lake.account"),
        ("[capture.targets.lake]\nurl = 's3://b'\nregion = 7", "capture.targets.lake.region"),
        ("[capture.targets.lake]\nurl = 's3://b'\nregion_file = '/no/such/file'", "capture.targets.lake.region_file"),
        ("[capture.targets.'a b']\nurl = 's3://b'", "capture.targets.a b"),
        ("[capture]\ncolour = 'red'", "capture_colour"),
    ],
)
def test_invalid_target_is_reported_without_its_value(tmp_path: Path, text: str, setting: str) -> None:
    """Error messages end up in terminals and tickets."""
    config = tmp_path / "hubmere.toml"
    config.write_text(text, encoding="utf-8")

    with pytest.raises(BadSettings) as bad:
        load({}, {}, config)

    assert [problem.setting for problem in bad.value.problems] == [setting]
    assert "top-secret" not in str(bad.value)


def test_secrets_of_targets_are_not_in_the_repr(tmp_path: Path) -> None:
    """Settings may be logged or printed."""
    assert "a-key" not in repr(load({}, {}, a_file_of_targets(tmp_path)))
